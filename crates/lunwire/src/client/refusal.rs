// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What somebody can try whom a target does not let in, or does not show anything.

use initiator::Auth;
use initiator::Error;
use initiator::Kind;
use initiator::Options;
use initiator::Url;
use iscsi::chap::Algorithm;
use iscsi::initiator::LoginError;

/// As whom we ask, and what we and the target prove.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    initiator: String,
    proof: Proof,
    /// Not all hash functions are offered.
    few: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    None,
    Ours,
    Mutual,
}

impl Identity {
    /// That of a login with these options.
    pub(crate) fn of(options: &Options) -> Self {
        let proof = match &options.account {
            None => Proof::None,
            Some(account) if account.target().is_some() => Proof::Mutual,
            Some(_) => Proof::Ours,
        };
        let few = options.algorithms.len() < Algorithm::ALL.len();
        Self { initiator: options.initiator.clone(), proof, few }
    }

    /// Our own iSCSI name.
    pub(crate) fn initiator(&self) -> &str {
        &self.initiator
    }

    /// What there is to try where no targets are shown.
    pub(crate) fn sees_nothing(&self, url: &Url) -> String {
        let (portal, name) = (url.portal(), &self.initiator);
        format!(
            "{portal} shows no target to {name}: it has none, or none whose list of initiators has \
             this name; try: --initiator with a name that is on it, or add this one there"
        )
    }
}

/// An error of a login with what to do about it, where there is something to do.
pub(crate) fn advised(error: Error, url: &Url, identity: &Identity) -> anyhow::Error {
    match advice(&error, url, identity) {
        Some(advice) => anyhow::anyhow!("{url}: {}; {advice}", super::besides(&error, url)),
        None => super::advised(error, url),
    }
}

fn advice(error: &Error, url: &Url, identity: &Identity) -> Option<String> {
    let Identity { initiator, proof, few } = identity;
    let Kind::Login(error) = error.kind() else { return None };
    let hashes = if *few { ", more hash functions (--chap-algorithms)" } else { "" };
    Some(match (error, proof) {
        (LoginError::Refused(0x0202), _) => format!(
            "we are {initiator}; try: --initiator with a name that is on the list of the target, \
             or add this one there"
        ),
        (LoginError::Refused(0x0201) | LoginError::AuthMethod, Proof::None)
            if url.auth == Some(Auth::None) =>
        {
            format!(
                "we are {initiator} and prove nothing, as auth=none in the URL says; try: without \
                 it, and with --chap-user NAME --chap-secret-file FILE{}",
                super::for_destination()
            )
        }
        (LoginError::Refused(0x0201) | LoginError::AuthMethod, Proof::None) => format!(
            "we are {initiator} and prove nothing; try: --chap-user NAME --chap-secret-file FILE{}",
            super::for_destination()
        ),
        (LoginError::Refused(0x0201), Proof::Ours) => format!(
            "we are {initiator}; try: another --chap-user or secret{hashes}{}, or, where the \
             target has to prove itself too, --mutual-user NAME --mutual-secret-file FILE",
            super::for_destination()
        ),
        (LoginError::Refused(0x0201), Proof::Mutual) => format!(
            "we are {initiator}; try: another --chap-user or secret{hashes}; if these are right \
             the target may not use CHAP, which who runs it can tell"
        ),
        (LoginError::Chap(_) | LoginError::AuthenticationSkipped, Proof::Mutual) => {
            "try: another --mutual-user or --mutual-secret-file, if you trust the target".to_owned()
        }
        _ => return None,
    })
}
