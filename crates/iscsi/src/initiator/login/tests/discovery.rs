// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a discovery session has no use for (RFC 7143 §13).

use super::keys::OF_SESSION;
use super::keys::offer;
use super::keys::wide;
use super::*;
use crate::initiator::TaskReporting;

/// Covers: KEY-05c/I, KEY-14c/I, KEY-15c/I, KEY-23c/I, KEY-24c/I, KEY-28c/I, KEY-29c/I, KEY-30c/I,
/// KEY-35c/I, KEY-06, KEY-01/I.
#[test]
fn discovery_offers_no_key_of_commands() {
    let discovery = Identity { target: None, discovery: true, ..identity() };
    let mut lab = Lab::of(discovery.clone(), &wide(), None);
    lab.answer(SECURED, "AuthMethod=None\n");
    let of_all = ["DefaultTime2Wait", "DefaultTime2Retain", "ErrorRecoveryLevel"];
    for (key, _) in OF_SESSION {
        assert_eq!(offer(&lab, key).is_some(), of_all.contains(&key), "{key}");
    }
    assert_eq!(offer(&lab, "SendTargets"), None, "asked by a Text Request");
    // Nor does it matter what the target offers.
    for (key, value) in OF_SESSION.into_iter().filter(|(key, _)| !of_all.contains(key)) {
        lab.answer(MORE, &format!("{key}={value}\n"));
        let answer = &lab.requests.last().unwrap().1;
        assert!(answer.starts_with(&format!("{key}=")) && !answer.contains("NotUnderstood"));
    }
    lab.answer(DONE, "");
    assert_eq!(lab.done().parameters.max_connections, 1);
    // Where it would change how the session behaves, it is not agreed to.
    let task_reporting = |offer: &str| {
        let mut lab = Lab::of(discovery.clone(), &wide(), None);
        lab.answer(SECURED, "AuthMethod=None\n");
        lab.answer(MORE, &format!("TaskReporting={offer}\n"));
        lab.answer(DONE, "");
        assert_eq!(lab.done().parameters.task_reporting, TaskReporting::Rfc3720, "{offer}");
        assert!(!lab.done().keys().strays);
        lab.requests[2].1.clone()
    };
    let known = task_reporting("FastAbort,ResponseFence,RFC3720");
    assert_eq!(known, "TaskReporting=RFC3720\n");
    assert_eq!(task_reporting("FastAbort,ResponseFence"), "TaskReporting=Reject\n");
    // And be it no value of the key.
    for (key, _) in OF_SESSION.into_iter().filter(|(key, _)| !of_all.contains(key)) {
        for value in ["Slow", "", "Reject", "NotUnderstood"] {
            let mut lab = Lab::of(discovery.clone(), &wide(), None);
            lab.answer(SECURED, "AuthMethod=None\n");
            lab.answer(MORE, &format!("{key}={value}\n"));
            assert_eq!(lab.requests.last().unwrap().1, format!("{key}=Reject\n"), "{value}");
            lab.answer(DONE, "");
            lab.done();
        }
    }
}
