//! Samples of the progress of a run over time, in bounded memory.

use crate::app::report::progress_view::ProgressView;

/// The maximum number of samples, which is more than a chart has pixels. When it is reached, every second
/// sample is removed and the stride is doubled.
const MAX_SAMPLES: usize = 2_048;

/// Evenly spaced progress views of a run.
#[derive(Clone, Debug)]
pub struct ProgressHistory {
    samples: Vec<ProgressView>,
    /// Views since the last sample.
    skipped: u32,
    /// Every `stride`-th view becomes a sample.
    stride: u32,
}

impl Default for ProgressHistory {
    fn default() -> Self {
        Self { samples: Vec::new(), skipped: 0, stride: 1 }
    }
}

impl ProgressHistory {
    /// Adds a view, unless it is skipped.
    pub fn sample(&mut self, view: &ProgressView) {
        self.skipped += 1;
        if self.skipped < self.stride {
            return;
        }
        self.skipped = 0;
        self.samples.push(view.clone());
        if self.samples.len() == MAX_SAMPLES {
            let mut odd = false;
            self.samples.retain(|_| {
                odd = !odd;
                odd
            });
            self.stride *= 2;
        }
    }

    /// Adds the last view, which is never skipped.
    pub fn finish(&mut self, view: ProgressView) {
        self.samples.push(view);
    }

    /// Returns the samples in order of time.
    #[must_use]
    pub fn samples(&self) -> &[ProgressView] {
        &self.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_any_length_has_a_bounded_number_of_evenly_spaced_samples() {
        let mut history = ProgressHistory::default();
        for step in 0..100_000_u32 {
            history.sample(&ProgressView { elapsed: f64::from(step), ..ProgressView::default() });
        }
        let samples = history.samples();
        assert!((MAX_SAMPLES / 2..MAX_SAMPLES).contains(&samples.len()), "{}", samples.len());
        let gaps: Vec<f64> = samples.windows(2).map(|pair| pair[1].elapsed - pair[0].elapsed).collect();
        let widest = gaps.iter().copied().fold(0.0, f64::max);
        assert!((64.0..=128.0).contains(&widest), "{widest}");
    }
}
