//! What a run looked like over time, in bounded memory.

use crate::app::report::progress::ProgressView;

/// Samples that are kept at most: more than a chart has pixels. Beyond, every second one is let go of and the stride halved.
const MAX_SAMPLES: usize = 2_048;

/// Views of a run, evenly spaced.
#[derive(Clone, Debug)]
pub struct ProgressHistory {
    samples: Vec<ProgressView>,
    /// Views that were shown since the last one that was kept, and how many make a sample.
    skipped: u32,
    stride: u32,
}

impl Default for ProgressHistory {
    fn default() -> Self {
        Self { samples: Vec::new(), skipped: 0, stride: 1 }
    }
}

impl ProgressHistory {
    /// Takes in a view, if it is its turn.
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

    /// Takes in the last view, whosever turn it is.
    pub fn finish(&mut self, view: ProgressView) {
        self.samples.push(view);
    }

    /// The views, in order of time.
    #[must_use]
    pub fn samples(&self) -> &[ProgressView] {
        &self.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_whatever_length_is_a_bounded_number_of_evenly_spaced_samples() {
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
