// SPDX-License-Identifier: Apache-2.0 OR MIT
//! By what a client proves who it is, and has the target prove itself.

use std::sync::Arc;

use anyhow::Result;
use initiator::Auth;
use initiator::Url;
use iscsi::chap::Account;
use iscsi::chap::Credentials;
use iscsi::chap::Secret;

use super::usage;
use crate::args::ClientOptions;
use crate::args::Usage;
use crate::credentials::Accounts;
use crate::credentials::secret_of_environment;
use crate::credentials::shown_file;
use crate::credentials::shown_user;
use crate::credentials::shown_variable;
use crate::output;

/// By what we prove who we are; options come before the URL.
pub(super) fn of(client: &ClientOptions, url: &Url) -> Result<Option<Arc<Account>>> {
    let end = client.account_prefix;
    if url.auth == Some(Auth::None) {
        return match &client.chap_user {
            // What is for both ends of a copy is for the other one.
            Some(user) if !end.is_empty() || !is_for_both_ends() => {
                let user = shown_user(user);
                let why = format!("{url} says auth=none; try: without one of them");
                Err(usage(&format!("--{end}chap-user"), &user, why))
            }
            _ => Ok(None),
        };
    }
    let nobody = |given: String| -> anyhow::Error {
        Usage(format!(
            "{given}: --{end}chap-user is missing, and {url} has no user; try: a user there \
             (iscsi://USER@...), or ?auth=none behind it if nothing is to be proven there"
        ))
        .into()
    };
    for secret in [&url.secret, &url.target_secret].into_iter().flatten() {
        output::hide(secret);
        if std::env::args_os().any(|word| word.to_string_lossy().contains(secret.as_str())) {
            output::warn(format_args!(
                "the secret in the URL shows to everybody on this machine (ps); \
                 try: --{end}chap-secret-file FILE and --{end}mutual-secret-file FILE{}",
                for_destination()
            ));
        }
    }
    let mut accounts = Accounts::default();
    let own = match (&client.chap_secret_env, &client.chap_secret_file, &url.secret) {
        (Some(variable), _, _) => {
            let user = client.chap_user.as_ref().or(url.user.as_ref());
            let given = shown_variable(&format!("--{end}chap-secret-env"), variable);
            let wrong = |why: String| anyhow::Error::from(Usage(format!("{given}: {why}")));
            let user = user.ok_or_else(|| nobody(given.clone()))?;
            let secret = secret_of_environment(variable).map_err(wrong)?;
            Some(credentials(user, secret)?)
        }
        (None, None, Some(secret)) => {
            let user = client.chap_user.as_ref().or(url.user.as_ref());
            let secret = Secret::from_text(secret.as_bytes())
                .map_err(|error| usage("URL", &url.to_string(), error))?;
            user.map(|user| credentials(user, secret)).transpose()?
        }
        (None, None, _) if client.chap_user.is_none() && url.user.is_some() => {
            let why = format!("its user has no secret; try: --{end}chap-secret-file FILE");
            return Err(usage("URL", &url.to_string(), why));
        }
        (None, file, _) => {
            let user = client.chap_user.as_ref().or(url.user.as_ref());
            if let (None, Some(file)) = (user, file) {
                return Err(nobody(shown_file(&format!("--{end}chap-secret-file"), file)));
            }
            accounts.pair(&format!("{end}chap"), user, file.as_ref())?
        }
    };
    let (user, file) = (client.mutual_user.as_ref(), client.mutual_secret_file.as_ref());
    let target = match (file, &url.target_user, &url.target_secret) {
        (None, Some(named), Some(secret)) => {
            let secret = Secret::from_text(secret.as_bytes())
                .map_err(|error| usage("URL", &url.to_string(), error))?;
            Some(credentials(user.unwrap_or(named), secret)?)
        }
        _ => accounts.pair(&format!("{end}mutual"), user, file)?,
    };
    if url.auth.is_some() && own.is_none() {
        return Err(usage("URL", &url.to_string(), "auth: a user and its secret are missing"));
    }
    for warning in accounts.warnings() {
        output::warn(warning);
    }
    match (own, target) {
        (None, None) => Ok(None),
        (None, Some(_)) => {
            let missing =
                format!("--{end}mutual-user: --{end}chap-user and its secret are missing");
            Err(Usage(missing).into())
        }
        (Some(own), target) => {
            let account = Account::new(own, target);
            let place = match file {
                Some(file) => shown_file(&format!("--{end}mutual-secret-file"), file),
                None => format!("URL {url}"),
            };
            let wrong = |error| Usage(format!("{place}: {error}"));
            Ok(Some(Arc::new(account.map_err(wrong)?)))
        }
    }
}

/// Which options give the account at one end of a copy alone, behind those that are for both.
pub(crate) fn for_destination() -> &'static str {
    match is_for_both_ends() {
        true => " (--to-chap-user, --to-chap-secret-file and so on at the destination)",
        false => "",
    }
}

/// Whether the options of the account are for two disks, each of which may have one of its own.
fn is_for_both_ends() -> bool {
    output::command().is_some_and(|command| command == "copy")
}

fn credentials(user: &str, secret: Secret) -> Result<Credentials> {
    Credentials::new(user.to_owned(), secret)
        .map_err(|error| usage("--chap-user", &shown_user(user), error))
}
