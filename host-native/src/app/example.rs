//! The bundled example: a pipeline file and a dataset that are part of the program.

use std::path::Path;

use crate::app::config::pipeline::{FileError, PipelineFile, SourceText};
use crate::app::data::{Dataset, DatasetError, DatasetFormat};

/// The name of the example in messages, in place of a file name.
pub const NAME: &str = "the bundled example";

const PIPELINE: &str = include_str!("../../example/harbour_log.toml");
const DATASET: &[u8] = include_bytes!("../../example/harbour_log.csv");

/// Parses the pipeline file of the example.
pub fn pipeline() -> Result<PipelineFile, FileError> {
    PipelineFile::parse(SourceText::new("harbour_log.toml", PIPELINE), Path::new(""))
}

/// Reads the dataset of the example.
pub fn dataset() -> Result<Dataset, DatasetError> {
    Dataset::parse(Path::new("harbour_log.csv"), DATASET, DatasetFormat::Csv)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::config::pipeline::Endpoint;

    #[test]
    fn the_example_has_many_rows_and_columns_and_needs_no_network() {
        let (pipeline, dataset) = (pipeline().unwrap(), dataset().unwrap());
        assert!(dataset.rows() >= 200);
        assert!(pipeline.columns.len() >= 4);
        assert!(pipeline.models.len() >= 2);
        assert!(pipeline.models.iter().all(|model| matches!(model.endpoint, Endpoint::Mock(_))));
    }
}
