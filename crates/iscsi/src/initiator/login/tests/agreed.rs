// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What of the agreed values depends on others, and from when on they hold.

use super::*;

/// Covers: KEY-31/I.
#[test]
fn one_r2t_at_a_time_is_offered_where_sequences_come_in_order_and_may_be_lost() {
    for (error_recovery_level, data_sequence_in_order, offer) in
        [(0, true, "8"), (0, false, "8"), (1, true, "1"), (2, true, "1"), (1, false, "8")]
    {
        let settings =
            Settings { error_recovery_level, data_sequence_in_order, ..Settings::default() };
        let mut lab = Lab::with(&settings, None);
        lab.answer(SECURED, "AuthMethod=None\nTargetPortalGroupTag=1\n");
        let text = &lab.requests.last().unwrap().1;
        let expected = format!("MaxOutstandingR2T={offer}\n");
        assert!(text.contains(&expected), "level {error_recovery_level}: {text}");
    }
}

/// Where the offer has left the order to the target, its answer decides how many there are.
///
/// Covers: KEY-31/I.
#[test]
fn one_r2t_at_a_time_is_in_force_where_the_target_makes_it_so() {
    let order = ["DataSequenceInOrder=Yes\n", "DataSequenceInOrder=No\n", ""];
    for (level, order, r2ts) in [
        ("0", order[0], 8),
        ("1", order[0], 1),
        ("2", order[0], 1),
        ("1", order[1], 8),
        ("2", order[1], 8),
        // Without an answer sequences come in order.
        ("1", order[2], 1),
    ] {
        let wishes = Settings { error_recovery_level: 2, ..Settings::default() };
        let settings = Settings { data_sequence_in_order: false, ..wishes };
        let mut lab = Lab::with(&settings, None);
        lab.answer(SECURED, "AuthMethod=None\nTargetPortalGroupTag=1\n");
        let answers = format!("MaxOutstandingR2T=8\nErrorRecoveryLevel={level}\n{order}");
        lab.answer(DONE, &answers);
        let login = lab.done();
        assert_eq!(login.parameters.max_outstanding_r2t, r2ts, "{answers}");
        assert_eq!(login.keys().max_outstanding_r2t, r2ts, "{answers}");
    }
}

/// A digest is agreed on long before the login ends; nothing of it has one.
///
/// Covers: KEY-03/I, NEG-23/I, LGN-06/I.
#[test]
fn digests_begin_after_the_final_response() {
    let wanted = DigestOffer::Preferred;
    let settings = Settings { header_digest: wanted, data_digest: wanted, ..Settings::default() };
    let mut lab = Lab::with(&settings, None);
    lab.answer(SECURED, "AuthMethod=None\nTargetPortalGroupTag=1\n");
    let lengths = "MaxRecvDataSegmentLength=65536\n";
    lab.answer(MORE, &format!("HeaderDigest=CRC32C\nDataDigest=CRC32C\n{lengths}"));
    let piece = LoginResponse { continue_: true, ..lab.response(MORE) };
    lab.feed(piece, "X-a=");
    lab.answer(MORE, "1\n");
    assert!(lab.keys.is_none() && lab.requests.len() == 5, "still in the login");
    lab.answer(DONE, "");
    let keys = lab.keys.unwrap();
    assert!(keys.header_digest && keys.data_digest);
    // Nor are there any where the login fails after that.
    let mut lab = Lab::with(&settings, None);
    lab.answer(SECURED, "AuthMethod=None\nTargetPortalGroupTag=1\n");
    lab.answer(MORE, "HeaderDigest=CRC32C\nDataDigest=CRC32C\n");
    lab.answer(DONE, "DataDigest=CRC32C\n");
    assert!(lab.keys.is_none() && lab.closes);
}
