//! What it took: the difference between the two sources is short, and the one that the README shows.

const BEFORE: &str = include_str!("../../../counter-before/src/main.rs");
const AFTER: &str = include_str!("../../src/main.rs");
const README: &str = include_str!("../../../../README.md");

/// The lines that only one of the two texts has, in order, as `diff -u` marks them.
fn difference(before: &str, after: &str) -> Vec<String> {
    let (before, after): (Vec<_>, Vec<_>) = (before.lines().collect(), after.lines().collect());
    // How many lines the rests have in common.
    let mut common = vec![vec![0; after.len() + 1]; before.len() + 1];
    for old in (0..before.len()).rev() {
        for new in (0..after.len()).rev() {
            common[old][new] = match before[old] == after[new] {
                true => common[old + 1][new + 1] + 1,
                false => common[old + 1][new].max(common[old][new + 1]),
            };
        }
    }
    let (mut old, mut new, mut changed) = (0, 0, Vec::new());
    while old < before.len() || new < after.len() {
        if old < before.len() && new < after.len() && before[old] == after[new] {
            (old, new) = (old + 1, new + 1);
        } else if new == after.len()
            || old < before.len() && common[old + 1][new] >= common[old][new + 1]
        {
            changed.push(format!("-{}", before[old]));
            old += 1;
        } else {
            changed.push(format!("+{}", after[new]));
            new += 1;
        }
    }
    changed
}

/// The README's block of this kind.
fn shown() -> Vec<&'static str> {
    let block = README
        .split_once("```diff\n")
        .and_then(|(_, rest)| rest.split_once("```"));
    block.expect("the README shows no diff").0.lines().collect()
}

#[test]
fn ten_lines_are_enough_and_the_readme_shows_them() {
    let changed = difference(BEFORE, AFTER);
    assert!(changed.len() <= 10, "{changed:#?}");
    let shown = shown();
    let (marked, context): (Vec<&str>, Vec<&str>) = shown
        .into_iter()
        .partition(|line| line.starts_with(['+', '-']));
    assert_eq!(marked, changed);
    for line in context {
        let line = line.strip_prefix(' ').unwrap_or(line);
        assert!(
            line == "…" || BEFORE.lines().any(|have| have == line),
            "{line:?} is in neither source"
        );
    }
}

#[test]
fn differences_are_found() {
    assert_eq!(difference("a\nb\nc", "a\nx\nc\nd"), ["-b", "+x", "+d"]);
    assert!(difference("a", "a").is_empty());
}
