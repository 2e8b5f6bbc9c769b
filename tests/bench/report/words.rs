//! The time of a failover in words, as the README and the book say it.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Results, tables};
use crate::failover::Fault;

/// The parts of a second in words, by their numbers; halves and quarters are constants where pages have them.
const PARTS: [(u32, &str); 6] = [
    (5, "a fifth of a second"),
    (6, "a sixth of a second"),
    (7, "a seventh of a second"),
    (8, "an eighth of a second"),
    (9, "a ninth of a second"),
    (10, "a tenth of a second"),
];

/// The pages of the book, the README and the changelog.
fn pages() -> Vec<PathBuf> {
    fn markdown(folder: &Path, pages: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                markdown(&path, pages);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    let repository = leasehold_lab::repository();
    let mut pages = vec![repository.join("README.md"), repository.join("CHANGELOG.md")];
    markdown(&repository.join("docs/src"), &mut pages);
    pages
}

/// The part of a second that is nearest to `ms`.
fn nearest(ms: f64) -> u32 {
    let distance = |part: u32| (1000.0 / f64::from(part) - ms).abs();
    let parts = PARTS.iter().map(|(part, _)| *part);
    parts.min_by(|one, other| distance(*one).total_cmp(&distance(*other))).unwrap()
}

#[test]
fn the_time_of_a_failover_in_words_is_the_median_of_the_results() {
    let folder = leasehold_lab::repository().join("tests/bench/results");
    let results = Results::read(&folder).unwrap();
    let all = tables::series(results.failover.iter());
    let dead =
        |it: &&tables::Series<'_>| it.fault == Fault::NodeDead.name() && it.system == "leasehold";
    let dead = all.iter().find(dead).unwrap();
    let median = dead.spread(|felt| felt.outage_ms).unwrap().median;
    let measured = nearest(median);
    let mut found = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap().to_lowercase();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for (part, words) in PARTS {
            let count = text.matches(words).count();
            let page = page.display();
            assert!(
                count == 0 || part == measured,
                "{page}: {words}, and the median is {median} ms"
            );
            found += count;
        }
    }
    assert!(found > 0, "no page has the time of a failover in words");
}

#[test]
fn a_time_has_the_nearest_part_of_a_second() {
    assert_eq!([120.0, 125.0, 134.0, 112.0, 3000.0].map(nearest), [8, 8, 7, 9, 5]);
}
