//! What a run looked like over time, in bounded memory.

use crate::app::report::progress::View;

/// Samples that are kept at most: more than a chart has pixels. Beyond, every second one is let go of and the pace halved.
const MOST: usize = 2_048;

/// Views of a run, evenly spaced.
#[derive(Clone, Debug)]
pub struct Timeline {
    samples: Vec<View>,
    /// Views that were shown since the last one that was kept, and how many make a sample.
    since: u32,
    pace: u32,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { samples: Vec::new(), since: 0, pace: 1 }
    }
}

impl Timeline {
    /// Takes in a view, if it is its turn.
    pub fn sample(&mut self, view: &View) {
        self.since += 1;
        if self.since < self.pace {
            return;
        }
        self.since = 0;
        self.samples.push(view.clone());
        if self.samples.len() == MOST {
            let mut odd = false;
            self.samples.retain(|_| {
                odd = !odd;
                odd
            });
            self.pace *= 2;
        }
    }

    /// Takes in the last view, whosever turn it is.
    pub fn finish(&mut self, view: View) {
        self.samples.push(view);
    }

    /// The views, in order of time.
    #[must_use]
    pub fn samples(&self) -> &[View] {
        &self.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_whatever_length_is_a_bounded_number_of_evenly_spaced_samples() {
        let mut timeline = Timeline::default();
        for step in 0..100_000_u32 {
            timeline.sample(&View { elapsed: f64::from(step), ..View::default() });
        }
        let samples = timeline.samples();
        assert!((MOST / 2..MOST).contains(&samples.len()), "{}", samples.len());
        let gaps: Vec<f64> = samples.windows(2).map(|pair| pair[1].elapsed - pair[0].elapsed).collect();
        let widest = gaps.iter().copied().fold(0.0, f64::max);
        assert!((64.0..=128.0).contains(&widest), "{widest}");
    }
}
