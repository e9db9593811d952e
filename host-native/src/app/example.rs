//! The bundled example: a pipeline and its dataset, inside the program.

use std::path::Path;

use crate::app::config::pipeline::{FileError, PipelineFile, SourceText};
use crate::app::data::{Dataset, DatasetError, DatasetFormat};

/// What the example is called where a file would be named.
pub const NAME: &str = "the bundled example";

const PIPELINE: &str = include_str!("../../example/harbour_log.toml");
const DATASET: &[u8] = include_bytes!("../../example/harbour_log.csv");

/// The example's pipeline file.
pub fn pipeline() -> Result<PipelineFile, FileError> {
    PipelineFile::parse(SourceText::new("harbour_log.toml", PIPELINE), Path::new(""))
}

/// The example's dataset, byte for byte.
#[must_use]
pub const fn dataset_bytes() -> &'static [u8] {
    DATASET
}

/// The example's dataset.
pub fn dataset() -> Result<Dataset, DatasetError> {
    Dataset::parse(Path::new("harbour_log.csv"), DATASET, DatasetFormat::Csv)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::config::pipeline::Endpoint;

    #[test]
    fn the_example_is_large_enough_to_show_something_and_needs_no_network() {
        let (pipeline, dataset) = (pipeline().unwrap(), dataset().unwrap());
        assert!(dataset.rows() >= 200);
        assert!(pipeline.columns.len() >= 4);
        assert!(pipeline.models.len() >= 2);
        assert!(pipeline.models.iter().all(|model| matches!(model.endpoint, Endpoint::Mock(_))));
    }
}
