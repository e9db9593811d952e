//! Finds texts that are nearly the same as an earlier one.
//!
//! The *similarity* of two texts is the Jaccard index of their sets of word triples: the number of triples in
//! both sets, divided by the number in either. Case, punctuation and white space do not count. A text of
//! fewer than three words is one triple.
//!
//! A text is represented by its *min-hash signature*: for each of 256 hash functions the smallest hash of its
//! triples. Two signatures agree in a place with a probability that is the similarity of the texts, so the
//! share of places in which they agree is an estimate of it, with a standard error of at most 1/32. To find
//! candidates without comparing all pairs, signatures are cut into bands: two texts are compared if they
//! agree in a whole band. Bands are as long as possible so that a pair at the bound is missed once in a
//! thousand at most.
//!
//! Texts that share a long template agree in the same bands, so a text could have all others as candidates.
//! It is compared with 1000 at most: first those of the band that the fewest other texts agree in. Such a
//! band tells most about a text, and a near-duplicate agrees in it as likely as in any other.
//!
//! Sources: Broder, "On the resemblance and containment of documents" (1997), for the signature; Leskovec,
//! Rajaraman and Ullman, "Mining of Massive Datasets", section 3.4, for the bands; Steele, Lea and Flood,
//! "Fast splittable pseudorandom number generators" (2014), for the mixing function.
//!
//! Whether a text counts as a near-duplicate depends only on the texts before it, on every machine: the hash
//! functions are fixed. A text takes 256 hashes for each of its words, and memory for its signature and its
//! bands: 2 to 4 KiB at a similarity of 0.9, 3 to 5 KiB at 0.8, 4 to 8 KiB at 0.5, and 7 to 14 KiB at 0.1.

use std::collections::{BTreeSet, HashMap};

use unicode_segmentation::UnicodeSegmentation as _;

/// The length of a signature.
const HASHES: usize = 256;

/// The words of a triple.
const WORDS: usize = 3;

/// The greatest probability with which a pair of texts at the bound is not compared.
const MAX_MISSED: f64 = 0.001;

/// The greatest number of earlier texts that a text is compared with, counted anew for each band in which
/// they agree. A text is then compared in about as much time as its signature takes.
const MAX_COMPARED: usize = 1_000;

/// The texts so far, each unlike those before it.
#[derive(Debug)]
pub struct DistinctTexts {
    min_similarity: f64,
    /// The places of a signature in one band.
    band: usize,
    signatures: Vec<[u32; HASHES]>,
    /// For each band, the texts by the hash of their places in the band.
    alike: Vec<HashMap<u64, Alike>>,
    /// For each text and band, the text before it with the same hash, or [`NONE`].
    before: Vec<u32>,
}

/// The texts whose places in a band have the same hash.
#[derive(Clone, Copy, Debug)]
struct Alike {
    /// The number of texts.
    count: u32,
    /// The latest text, or [`NONE`].
    latest: u32,
}

/// No text.
const NONE: u32 = u32::MAX;

/// An earlier text that a text is nearly the same as.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NearDuplicate {
    /// The place of the earlier text among those that were kept, from 0.
    pub of: usize,
    /// The estimated similarity of the two.
    pub similarity: f64,
}

impl DistinctTexts {
    /// Creates an empty set. Texts with at least this similarity, above 0 and at most 1, are near-duplicates.
    #[must_use]
    pub fn new(min_similarity: f64) -> Self {
        let band = band_length(min_similarity);
        let alike = vec![HashMap::new(); HASHES / band];
        Self { min_similarity, band, signatures: Vec::new(), alike, before: Vec::new() }
    }

    /// Keeps `text`, unless it is a near-duplicate of a text that was kept: then returns the first such text.
    pub fn insert(&mut self, text: &str) -> Option<NearDuplicate> {
        let signature = signature(text);
        let keys: Vec<u64> = signature.chunks(self.band).map(band_hash).collect();
        let mut compared = self.candidates(&keys).into_iter().map(|of| {
            let of = of as usize;
            NearDuplicate { of, similarity: similarity(&signature, &self.signatures[of]) }
        });
        let found = compared.find(|candidate| candidate.similarity >= self.min_similarity);
        if found.is_none() {
            let number = u32::try_from(self.signatures.len()).unwrap_or(NONE);
            for (alike, key) in self.alike.iter_mut().zip(keys) {
                let alike = alike.entry(key).or_insert(Alike { count: 0, latest: NONE });
                self.before.push(alike.latest);
                *alike = Alike { count: alike.count.saturating_add(1), latest: number };
            }
            self.signatures.push(signature);
        }
        found
    }

    /// Returns the texts to compare with one whose bands have these hashes, in order: see [`MAX_COMPARED`].
    fn candidates(&self, keys: &[u64]) -> BTreeSet<u32> {
        let bands = self.alike.iter().zip(keys).enumerate();
        let mut bands: Vec<(u32, usize, u32)> = bands
            .filter_map(|(band, (alike, key))| alike.get(key).map(|alike| (alike.count, band, alike.latest)))
            .collect();
        bands.sort_unstable();
        let texts = bands.into_iter().flat_map(|(_, band, latest)| {
            let before = move |text: &u32| self.before.get(*text as usize * keys.len() + band).copied();
            std::iter::successors(Some(latest), before).take_while(|text| *text != NONE)
        });
        texts.take(MAX_COMPARED).collect()
    }
}

/// Returns the greatest length of bands with which few pairs at the bound are missed.
fn band_length(min_similarity: f64) -> usize {
    let power = |base: f64, times: usize| (0..times).fold(1.0, |product, _| product * base);
    let missed = |band: usize| power(1.0 - power(min_similarity, band), HASHES / band);
    [32, 16, 8, 4, 2].into_iter().find(|band| missed(*band) <= MAX_MISSED).unwrap_or(1)
}

/// Returns the share of places in which two signatures agree.
fn similarity(one: &[u32; HASHES], other: &[u32; HASHES]) -> f64 {
    one.iter().zip(other).filter(|(one, other)| one == other).count() as f64 / HASHES as f64
}

fn signature(text: &str) -> [u32; HASHES] {
    let lower = text.to_lowercase();
    let words: Vec<u64> = lower.unicode_words().map(|word| hash(word.bytes().map(u64::from))).collect();
    let mut signature = [u32::MAX; HASHES];
    for triple in words.windows(WORDS.min(words.len()).max(1)) {
        let triple = hash(triple.iter().copied());
        for (number, least) in (0..).zip(&mut signature) {
            // The high half, because the low bits of a product depend on fewer bits.
            let hashed = (mix(triple ^ mix(number)) >> 32) as u32;
            *least = hashed.min(*least);
        }
    }
    signature
}

fn band_hash(places: &[u32]) -> u64 {
    hash(places.iter().copied().map(u64::from))
}

fn hash(parts: impl Iterator<Item = u64>) -> u64 {
    parts.fold(0, |hash, part| mix(hash ^ part))
}

/// Mixes the bits of `value`: one step of `SplitMix64` from it.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text of `words` words drawn from a thousand, of which those from `changed` on are others than in the
    /// text with the same seed and no change.
    fn text(seed: u64, words: u64, changed: u64) -> String {
        let word =
            |at: u64| format!("w{}", mix(seed * 1_000_003 + at + if at >= changed { 500_000 } else { 0 }) % 1_000);
        (0..words).map(word).collect::<Vec<_>>().join(" ")
    }

    /// Returns the similarity of two texts by its definition.
    fn jaccard(one: &str, other: &str) -> f64 {
        let triples = |text: &str| {
            let words: Vec<String> = text.split(' ').map(str::to_string).collect();
            words.windows(3).map(<[String]>::to_vec).collect::<BTreeSet<_>>()
        };
        let (one, other) = (triples(one), triples(other));
        one.intersection(&other).count() as f64 / one.union(&other).count() as f64
    }

    #[test]
    fn the_estimate_is_close_to_the_jaccard_index_of_word_triples() {
        for seed in 0..40 {
            let (one, other) = (text(seed, 200, 200), text(seed, 200, 100 + 2 * seed));
            let estimate = similarity(&signature(&one), &signature(&other));
            // Four standard errors.
            assert!((estimate - jaccard(&one, &other)).abs() <= 4.0 / 32.0, "{seed}: {estimate}");
        }
    }

    #[test]
    fn a_near_duplicate_is_found_among_many_texts_and_others_are_kept() {
        let mut texts = DistinctTexts::new(0.8);
        for seed in 0..500 {
            assert_eq!(texts.insert(&text(seed, 120, 120)), None, "{seed}");
        }
        for seed in 0..500 {
            // Three words at the end are others: 115 of 121 triples are in both.
            let found = texts.insert(&text(seed, 120, 117)).map(|found| found.of);
            assert_eq!(found, usize::try_from(seed).ok());
        }
        assert_eq!(texts.signatures.len(), 500);
    }

    #[test]
    fn a_text_with_a_common_template_is_compared_with_few_others_and_finds_its_near_duplicate() {
        let mut texts = DistinctTexts::new(0.8);
        // Any two share 38 of 70 triples, so that bands agree and no text is a near-duplicate.
        let templated = |seed: u64| format!("{} {}", text(1_000_000, 40, 40), text(seed, 16, 16));
        for seed in 0..1_500 {
            assert_eq!(texts.insert(&templated(seed)), None, "{seed}");
        }
        let keys = |text: &str| signature(text).chunks(texts.band).map(band_hash).collect::<Vec<_>>();
        let candidates = texts.candidates(&keys(&templated(1_500)));
        assert!((100..=MAX_COMPARED).contains(&candidates.len()), "{}", candidates.len());
        for seed in (0..1_500).step_by(37) {
            let found = texts.insert(&(templated(seed) + " w1")).map(|found| found.of);
            assert_eq!(found, usize::try_from(seed).ok());
        }
    }

    #[test]
    fn case_punctuation_and_white_space_do_not_count_but_the_order_of_words_does() {
        let mut texts = DistinctTexts::new(1.0);
        assert_eq!(texts.insert("The lamp, at last, is lit."), None);
        let same = NearDuplicate { of: 0, similarity: 1.0 };
        assert_eq!(texts.insert("the LAMP at last\n is lit"), Some(same));
        assert_eq!(texts.insert("At last the lamp is lit"), None);
    }

    #[test]
    fn short_and_empty_texts_and_texts_without_spaces_are_compared() {
        let mut texts = DistinctTexts::new(0.9);
        for text in ["", "yes", "yes no", "霧が港に入る", "霧が港を出る"] {
            assert_eq!(texts.insert(text), None, "{text}");
        }
        for (text, of) in [(" . ", 0), ("Yes!", 1), ("yes, no", 2), ("霧が港に入る。", 3)] {
            assert_eq!(texts.insert(text).map(|found| found.of), Some(of), "{text}");
        }
    }

    #[test]
    fn bands_are_longer_for_a_higher_bound() {
        assert_eq!([0.1, 0.5, 0.8, 0.9, 1.0].map(band_length), [1, 2, 4, 8, 32]);
    }

    #[test]
    fn signatures_are_the_same_on_every_machine() {
        let digest = band_hash(&signature("Fog at dawn, the lamp was lit."));
        assert_eq!(digest, 1_704_255_048_820_051_792, "the hash functions have changed");
    }
}
