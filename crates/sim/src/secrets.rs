// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who knows which secret (RFC 7143 §9.2.1, §12.1).

use std::sync::Arc;

use iscsi::chap::Account;
use iscsi::chap::Algorithm;
use iscsi::chap::Credentials;
use iscsi::chap::Secret;
use target::AuthenticationPolicy;
use target::Demand;

use crate::options::Secrets;

/// Names and secrets of a login at target `number`.
fn account(number: usize, both: Secrets) -> Arc<Account> {
    let credentials = |who: &str| {
        let secret = Secret::new(format!("of {who} at {number}, long").as_bytes());
        let secret = secret.expect("long enough");
        Credentials::new(format!("{who}-{number}"), secret).expect("a short name")
    };
    let target = (both == Secrets::Both).then(|| credentials("target"));
    Arc::new(Account::new(credentials("initiator"), target).expect("two secrets"))
}

/// What an initiator of target `number` knows.
pub(crate) fn of_initiator(number: usize, secrets: Secrets) -> Option<Arc<Account>> {
    (secrets != Secrets::None).then(|| account(number, secrets))
}

/// What target `number` demands.
pub(crate) fn of_target(
    number: usize,
    secrets: Secrets,
    algorithm: Algorithm,
    optional: bool,
) -> AuthenticationPolicy {
    let demand = match secrets {
        Secrets::None => return AuthenticationPolicy::default(),
        Secrets::Initiator if optional => Demand::Optional,
        Secrets::Initiator => Demand::Required,
        Secrets::Both => Demand::Mutual,
    };
    let account = Some(account(number, secrets));
    AuthenticationPolicy { demand, algorithms: vec![algorithm], account }
}
