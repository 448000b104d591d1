// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a target offers or asks, and what it is told (RFC 7143 §6.2).

use super::*;
use crate::limits;

/// Keys that nobody knows, of which each wants an answer.
fn strangers(count: usize) -> String {
    (0..count).map(|number| format!("X-{number:04}=1\n")).collect()
}

/// As many as there are, in both stages; if they are more than fit, none is left without its
/// answer in silence.
///
/// Covers: NEG-16/I, LGN-06/I.
#[test]
fn each_unknown_key_has_its_answer_or_the_login_ends() {
    const ANSWER_LEN: usize = "X-0000=NotUnderstood\n".len();
    let fit = limits::LOGIN_SEGMENT_LEN_MAX / ANSWER_LEN;
    for stages in [STAYS, MORE] {
        for (count, fits) in [(1, true), (fit, true), (fit + 1, false), (fit + 200, false)] {
            let mut lab = if stages == STAYS { Lab::new() } else { Lab::operational() };
            let before = lab.requests.len();
            lab.answer(stages, &strangers(count));
            if fits {
                let (_, answers) = lab.requests.last().unwrap();
                let expected = strangers(count).replace("=1", "=NotUnderstood");
                assert_eq!(*answers, expected, "{count}");
            } else {
                assert_eq!(lab.requests.len(), before, "{count}: nothing that is half an answer");
                let why = lab.error().to_string();
                assert!(why.contains("answers need more than 8192 bytes"), "{why}");
            }
        }
    }
    // Whatever the target has declared meanwhile.
    let mut lab = Lab::operational();
    lab.answer(MORE, "MaxRecvDataSegmentLength=262144\n");
    lab.answer(MORE, &strangers(fit + 1));
    assert!(lab.error().to_string().contains("answers need more"), "{}", lab.error());
    // With what is answered goes what is offered.
    let mut lab = Lab::new();
    lab.answer(SECURED, &strangers(fit));
    assert!(lab.error().to_string().contains("answers need more"), "{}", lab.error());
}
