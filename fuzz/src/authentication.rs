// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The policies that a login meets, with a challenge whose right answer is known.

use iscsi::chap::Account;
use iscsi::chap::Algorithm;
use iscsi::chap::Challenge;
use iscsi::chap::Credentials;
use iscsi::chap::Exchange;
use iscsi::chap::Mutual;
use iscsi::chap::Policy;
use iscsi::chap::Secret;
use iscsi::target_role::Authentication;
use std::sync::Arc;

/// One of all policies.
pub(crate) fn authentication(choice: u8) -> Authentication {
    match choice % 4 {
        0 => Authentication::Off,
        1 => Authentication::Optional(exchange(Mutual::OnRequest)),
        2 => Authentication::Required(exchange(Mutual::OnRequest)),
        _ => Authentication::Required(exchange(Mutual::Required)),
    }
}

fn exchange(mutual: Mutual) -> Box<Exchange> {
    let credentials = |name: &str, secret: &[u8]| {
        let secret = Secret::new(secret).expect("16 bytes");
        Credentials::new(name.to_owned(), secret).expect("a name")
    };
    let target = credentials("diskuser", b"targetsecret5678");
    let account = Account::new(credentials("hostuser", b"secretsecret1234"), Some(target));
    let policy = Policy {
        accounts: vec![Arc::new(account.expect("two secrets"))],
        algorithms: Algorithm::ALL.to_vec(),
        mutual,
    };
    let challenge: Vec<u8> = (0..16).collect();
    Box::new(Exchange::new(policy, Challenge::new(1, &challenge).expect("16 bytes")))
}
