//! What becomes of the numbers of several rounds: the middle, how far they lie apart, and ratios within a round.
//!
//! The machine's speed changes from minute to minute, so that two figures are compared only where they come from the same round: the
//! ratio is taken first and the median of the ratios afterwards.

/// The middle of the rounds, and the quartiles around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Spread {
    /// None without a number that is one.
    pub fn of(numbers: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = numbers.into_iter().filter(|n| n.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        Some(Spread { median: quantile(&sorted, 0.5)?, low: quantile(&sorted, 0.25)?, high: quantile(&sorted, 0.75)? })
    }

    /// Of `ours` to `theirs`, round by round. Rounds that only one of them has do not count.
    pub fn ratio(ours: &[f64], theirs: &[f64]) -> Option<Spread> {
        Spread::of(ours.iter().zip(theirs).filter(|(_, theirs)| **theirs > 0.0).map(|(ours, theirs)| ours / theirs))
    }
}

/// The `q` quantile (0 to 1) of sorted numbers, between two of them where it falls between.
pub fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = q.clamp(0.0, 1.0) * last as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(below + (above - below) * at.fract())
}

/// A percentile of latencies in nanoseconds, which are sorted for it.
pub fn percentile(latencies: &mut [u64], percent: usize) -> u64 {
    let Some(last) = latencies.len().checked_sub(1) else { return 0 };
    *latencies.select_nth_unstable(last * percent.min(100) / 100).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_and_its_quartiles() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([f64::NAN, 1.0]), Some(Spread { median: 1.0, low: 1.0, high: 1.0 }));
        assert_eq!(Spread::of([5.0, 1.0, 3.0, 2.0, 4.0]), Some(Spread { median: 3.0, low: 2.0, high: 4.0 }));
        assert_eq!(Spread::of([1.0, 2.0]), Some(Spread { median: 1.5, low: 1.25, high: 1.75 }));
    }

    #[test]
    fn a_ratio_is_taken_within_its_round() {
        // Twice as much in each round, though the second round was ten times slower.
        assert_eq!(Spread::ratio(&[2.0, 20.0], &[1.0, 10.0]), Some(Spread { median: 2.0, low: 2.0, high: 2.0 }));
        assert_eq!(Spread::ratio(&[1.0, 2.0, 3.0], &[1.0]).map(|r| r.median), Some(1.0));
        assert_eq!(Spread::ratio(&[1.0], &[0.0]), None);
    }

    #[test]
    fn percentiles_of_latencies() {
        let mut times: Vec<u64> = (1..=101).rev().collect();
        assert_eq!((percentile(&mut times, 50), percentile(&mut times, 99), percentile(&mut times, 100)), (51, 100, 101));
        assert_eq!(percentile(&mut [], 50), 0);
    }
}
