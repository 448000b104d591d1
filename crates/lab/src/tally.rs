// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What came of a study in two sentences, from the verdicts in its results: for its own page, for
//! the one that joins all, and for docs/STUDIES.md (xtask has this file, too).

use serde_json::Value;

/// Verdicts, and what is said of those that have one.
const WORDS: [(&str, &str); 5] = [
    ("holds", "hold"),
    ("holds in part", "hold in part"),
    ("no longer", "hold no longer"),
    ("the spread hides it", "hidden by the spread"),
    ("cannot be tested here", "cannot be tested here"),
];

/// Of the figures of some results. Those of which one run is count each, as each has a row; what
/// has no label of the study is measured beside it.
pub(crate) fn tally(figures: &[Value]) -> String {
    let labels = |figure: &Value| figure["labels"].as_array().map_or(0, Vec::len);
    let each = figures.iter().flat_map(|one| std::iter::repeat_n(one, labels(one).max(1)));
    let ours = match figures.iter().filter(|one| labels(one) == 0).count() {
        0 => String::new(),
        count => format!(" ({count} of them ours, beside the study's)"),
    };
    let claims = || figures.iter().filter_map(|figure| figure["claims"].as_array()).flatten();
    format!(
        "Figures and tables, {}{ours}: {}. What they claim, {}: {}.",
        each.clone().count(),
        counts(each),
        claims().count(),
        counts(claims()),
    )
}

fn counts<'a>(all: impl Iterator<Item = &'a Value>) -> String {
    let verdicts: Vec<&str> = all.filter_map(|one| one["verdict"].as_str()).collect();
    let told = WORDS.iter().filter_map(|(verdict, words)| {
        let count = verdicts.iter().filter(|one| *one == verdict).count();
        (count > 0).then(|| format!("{count} {words}"))
    });
    told.collect::<Vec<_>>().join(", ")
}

/// How many cases of a claim say what, where they do not all say the same: a verdict that is of
/// some of them is not seen in what is told of all.
pub(crate) fn cases(claim: &Value) -> Option<String> {
    let answers: Vec<&str> =
        claim["tests"].as_array()?.iter().filter_map(|test| test["answer"].as_str()).collect();
    let told = ["yes", "no", "hidden"].into_iter().filter_map(|answer| {
        let count = answers.iter().filter(|one| **one == answer).count();
        (count > 0).then(|| format!("{count} {answer}"))
    });
    let told: Vec<String> = told.collect();
    (told.len() > 1).then(|| told.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn figures_and_their_claims_are_counted_by_the_same_verdicts() {
        let [yes, no, none] = ["holds", "no longer", "cannot be tested here"]
            .map(|verdict| json!({ "verdict": verdict }));
        let figures = [
            json!({ "labels": ["Figure 1", "Figure 2"], "verdict": "holds in part",
                "claims": [yes, no] }),
            json!({ "labels": [], "verdict": "holds", "claims": [yes, none] }),
        ];
        assert_eq!(
            tally(&figures),
            "Figures and tables, 3 (1 of them ours, beside the study's): 1 hold, 2 hold in part. \
             What they claim, 4: 2 hold, 1 hold no longer, 1 cannot be tested here."
        );
        assert!(tally(&figures[..1]).starts_with("Figures and tables, 2: 2 hold in part. What"));
    }

    #[test]
    fn cases_are_counted_where_they_do_not_say_the_same() {
        let claim = |answers: &[&str]| {
            let tests: Vec<Value> = answers.iter().map(|one| json!({ "answer": one })).collect();
            cases(&json!({ "tests": tests }))
        };
        let told = claim(&["no", "hidden", "yes", "no"]);
        assert_eq!(told.as_deref(), Some("1 yes, 2 no, 1 hidden"));
        assert_eq!(claim(&["yes", "hidden", "yes"]).as_deref(), Some("2 yes, 1 hidden"));
        assert_eq!([claim(&["no", "no"]), claim(&["hidden"]), claim(&[])], [None, None, None]);
        assert_eq!(cases(&json!({})), None);
    }
}
