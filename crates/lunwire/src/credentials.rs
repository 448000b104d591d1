// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CHAP names and secrets: from a file or the environment, never from an argument, never printed.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs::Metadata;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use control::config;
use control::config::Chap;
use control::config::Source;
use initiator::Url;
use iscsi::chap::Account;
use iscsi::chap::Algorithm;
use iscsi::chap::Credentials;
use iscsi::chap::Secret;
use store::spec::RemoteSpec;
use target::AccessRule;
use target::AuthenticationPolicy;
use target::Demand;
use toml::Spanned;
use zeroize::Zeroizing;

use crate::args::ServeOptions;
use crate::args::Usage;
use crate::plan::checked;
use crate::plan::option;
use crate::plan::path_of_file;

/// Longest file of a secret, bytes: the longest secret in hex, with room for a line end.
const SECRET_FILE_LEN_MAX: usize = 4096;

/// All accounts so far, and what was odd about them.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    accounts: Vec<Arc<Account>>,
    warnings: Vec<String>,
    /// Those that secrets came from, and what they were then.
    files: Vec<(PathBuf, Metadata)>,
}

/// Where nobody says anything.
pub(crate) fn nothing_demanded() -> AuthenticationPolicy {
    let algorithms = Algorithm::ALL.to_vec();
    AuthenticationPolicy { algorithms, ..AuthenticationPolicy::default() }
}

impl Accounts {
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The files that secrets came from, and what they were when they were read.
    pub(crate) fn files(&self) -> &[(PathBuf, Metadata)] {
        &self.files
    }

    /// The account that stands in the table `table`, if any.
    pub(crate) fn of_file(
        &mut self,
        source: &Source,
        table: &str,
        chap: Chap<'_>,
    ) -> Result<Option<Arc<Account>>> {
        let initiator = Side { source, table, prefix: "chap" };
        let target = Side { source, table, prefix: "mutual" };
        let mutual =
            target.read(chap.mutual_user, chap.mutual_secret_file, chap.mutual_secret_env, self)?;
        let own = initiator.read(chap.user, chap.secret_file, chap.secret_env, self)?;
        let Some(own) = own else {
            return match chap.mutual_user {
                None => Ok(None),
                Some(user) => {
                    let problem = "a target proves itself only to initiators that do so, too; add \
                                   chap-user and its secret";
                    Err(source.error(&target.field("user"), user, problem).into())
                }
            };
        };
        let Some(user) = chap.mutual_user.or(chap.user) else { return Ok(None) };
        let side = if mutual.is_some() { &target } else { &initiator };
        self.add(own, mutual).map(Some).or_else(|problem| side.error("user", user, problem))
    }

    /// The account of the command line with what it demands, if any.
    pub(crate) fn of_options(
        &mut self,
        options: &ServeOptions,
    ) -> Result<Option<AuthenticationPolicy>> {
        let own =
            self.pair("chap", options.chap_user.as_ref(), options.chap_secret_file.as_ref())?;
        let mutual =
            self.pair("mutual", options.mutual_user.as_ref(), options.mutual_secret_file.as_ref())?;
        let account = match (own, mutual) {
            (None, None) => return Ok(None),
            (None, Some(_)) => {
                let missing = "--mutual-user: --chap-user and --chap-secret-file are missing";
                return Err(Usage(missing.into()).into());
            }
            (Some(own), mutual) => {
                let flag = if mutual.is_some() { "--mutual-user" } else { "--chap-user" };
                let name = mutual.as_ref().unwrap_or(&own).name().to_owned();
                option(flag, shown_user(&name), self.add(own, mutual))?
            }
        };
        Ok(Some(AuthenticationPolicy {
            demand: Demand::Required,
            algorithms: Algorithm::ALL.to_vec(),
            account: Some(account),
        }))
    }

    /// What a target demands; `access`: its initiators, in the order of the file.
    pub(crate) fn of_target(
        &mut self,
        source: &Source,
        target: &config::Target,
        access: &[AccessRule],
    ) -> Result<AuthenticationPolicy> {
        let account = self.of_file(source, "target", target.chap())?;
        let any = account.is_some() || access.iter().any(|rule| rule.account.is_some());
        let demand = self.demand(source, "target.authentication", &target.authentication, any)?;
        let policy = AuthenticationPolicy {
            demand,
            algorithms: algorithms(source, "target.chap-algorithms", &target.chap_algorithms)?,
            account,
        };
        if matches!(demand, Demand::Off | Demand::Optional) {
            return Ok(policy);
        }
        for (rule, initiator) in access.iter().zip(&target.initiator) {
            let account = rule.account.as_ref().or(policy.account.as_ref());
            check_account(demand, account.map(AsRef::as_ref))
                .map_err(|what| source.error("target.initiator.name", &initiator.name, what))?;
        }
        if access.is_empty() {
            check_account(demand, policy.account.as_deref())
                .map_err(|what| source.error("target.name", &target.name, what))?;
        }
        Ok(policy)
    }

    /// What discovery sessions demand.
    pub(crate) fn discovery(
        &mut self,
        source: &Source,
        discovery: &config::Discovery,
    ) -> Result<AuthenticationPolicy> {
        let account = self.of_file(source, "discovery", discovery.chap())?;
        let field = "discovery.authentication";
        let demand = self.demand(source, field, &discovery.authentication, account.is_some())?;
        if let (Some(value), Demand::Required | Demand::Mutual) =
            (discovery.authentication.as_ref().or(discovery.chap_user.as_ref()), demand)
        {
            check_account(demand, account.as_deref())
                .map_err(|what| source.error(field, value, what))?;
        }
        let field = "discovery.chap-algorithms";
        let algorithms = algorithms(source, field, &discovery.chap_algorithms)?;
        Ok(AuthenticationPolicy { demand, algorithms, account })
    }

    fn demand(
        &mut self,
        source: &Source,
        field: &str,
        value: &Option<Spanned<String>>,
        any: bool,
    ) -> Result<Demand> {
        let Some(value) = value else {
            return Ok(if any { Demand::Required } else { Demand::Off });
        };
        let demand = checked(source, field, value, |text| match text.as_str() {
            "off" => Ok(Demand::Off),
            "optional" => Ok(Demand::Optional),
            "required" => Ok(Demand::Required),
            "mutual" => Ok(Demand::Mutual),
            _ => Err("off, optional, required or mutual is right"),
        })?;
        if demand == Demand::Off && any {
            let odd = source.error(field, value, "nobody is asked for the chap-user that is here");
            self.warnings.push(odd.to_string());
        }
        Ok(demand)
    }

    /// By what the daemon proves at another target who it is, and that target to the daemon.
    pub(crate) fn of_remote(
        &mut self,
        url: &Url,
        spec: &RemoteSpec,
    ) -> Result<Option<Arc<Account>>> {
        let sides = [
            ("user", "secret-file", &url.user, &spec.secret_file),
            ("mutual-user", "mutual-secret-file", &spec.mutual_user, &spec.mutual_secret_file),
        ];
        let mut found = Vec::new();
        for (name, option, user, path) in sides {
            found.push(match (user, path) {
                (None, None) => None,
                // Its name may hold what somebody meant as the secret.
                (Some(_), None) => bail!("{url}: {name}: {option} is missing"),
                (None, Some(_)) if name == "user" => {
                    bail!("{url}: {option}: the URL has no user; try: iscsi://USER@...")
                }
                (None, Some(_)) => bail!("{url}: {option}: {name} is missing"),
                (Some(user), Some(path)) => {
                    let given = shown_file(option, path);
                    let secret = self.secret_file(path, is_shown(path, path));
                    let secret = secret.map_err(|problem| anyhow!("{url}: {given}: {problem}"))?;
                    let credentials = Credentials::new(user.clone(), secret);
                    Some(credentials.map_err(|error| anyhow!("{url}: {name}: {error}"))?)
                }
            });
        }
        let mut found = found.into_iter().flatten();
        match (found.next(), found.next()) {
            (None, _) => Ok(None),
            (Some(_), None) if url.user.is_none() => {
                bail!("{url}: mutual-user: a user and its secret-file are missing")
            }
            (Some(own), target) => {
                let account = Account::new(own, target).map_err(|error| anyhow!("{url}: {error}"));
                Ok(Some(Arc::new(account?)))
            }
        }
    }

    /// A name and the file of its secret, from the options `--PREFIX-user`, `--PREFIX-secret-file`.
    pub(crate) fn pair(
        &mut self,
        prefix: &str,
        user: Option<&String>,
        path: Option<&String>,
    ) -> Result<Option<Credentials>> {
        let (user_flag, file_flag) =
            (format!("--{prefix}-user"), format!("--{prefix}-secret-file"));
        match (user, path) {
            (None, None) => Ok(None),
            (Some(user), None) => {
                let user = shown_user(user);
                Err(Usage(format!("{user_flag} {user}: {file_flag} is missing")).into())
            }
            (None, Some(path)) => {
                let given = shown_file(&file_flag, path);
                Err(Usage(format!("{given}: {user_flag} is missing")).into())
            }
            (Some(user), Some(path)) => {
                let given = shown_file(&file_flag, path);
                let secret = self.secret_file(path, is_shown(path, path));
                let secret = secret.map_err(|problem| Usage(format!("{given}: {problem}")))?;
                let credentials = Credentials::new(user.clone(), secret);
                option(&user_flag, shown_user(user), credentials).map(Some)
            }
        }
    }

    /// Takes an account, unless the secret of one direction serves in the other somewhere (RFC 7143
    /// §9.2.1).
    fn add(
        &mut self,
        own: Credentials,
        mutual: Option<Credentials>,
    ) -> Result<Arc<Account>, String> {
        let account = Arc::new(Account::new(own, mutual).map_err(|error| error.to_string())?);
        let crossed = |a: &Account, b: &Account| {
            b.target().is_some_and(|target| target.secret() == a.initiator().secret())
        };
        if self.accounts.iter().any(|old| crossed(old, &account) || crossed(&account, old)) {
            return Err(
                "the secret of a chap-user is that of a mutual-user; both directions need \
                        secrets of their own"
                    .into(),
            );
        }
        self.accounts.push(Arc::clone(&account));
        Ok(account)
    }

    /// Reads a secret; others on this machine should not be able to. `shown`: whether the message
    /// has the path before it.
    fn secret_file(&mut self, path: &str, shown: bool) -> Result<Secret, String> {
        let cannot = |error| format!("cannot read the secret: {error}");
        let opened = engine::files::open_whole(path.as_ref());
        let file = opened.map_err(|error| match (is_file(path), shown) {
            (true, _) => cannot(error),
            (false, true) => {
                format!("{}; try: a file that has the secret in it alone", cannot(error))
            }
            (false, false) => format!(
                "cannot read the secret: {error}; {NOT_SHOWN}; try: the path of a file that has \
                 the secret in it"
            ),
        })?;
        let facts = file.metadata().map_err(cannot)?;
        let mode = facts.permissions().mode();
        // One byte more than the limit, and no reallocation that would leave copies behind.
        let mut text = Zeroizing::new(Vec::with_capacity(SECRET_FILE_LEN_MAX + 1));
        let limit = u64::try_from(SECRET_FILE_LEN_MAX + 1).unwrap_or(u64::MAX);
        file.take(limit).read_to_end(&mut text).map_err(cannot)?;
        if text.len() > SECRET_FILE_LEN_MAX {
            return Err(format!("the file has more than {SECRET_FILE_LEN_MAX} bytes"));
        }
        let secret = Secret::from_text(&text).map_err(|error| error.to_string())?;
        self.files.push((path.into(), facts));
        if mode & OTHERS != 0 {
            self.warnings.push(format!(
                "{path} holds a secret and is open to everybody on this machine (mode {:04o}); \
                 try: chmod 600 {path}",
                mode & 0o7777
            ));
        }
        Ok(secret)
    }
}

/// Why a value does not stand in the message.
const NOT_SHOWN: &str = "the value is not shown, for it may be the secret itself";

/// The permission bits of those who are neither owner nor in the group.
const OTHERS: u32 = 0o007;

/// The fields of one direction in a table of a file.
struct Side<'a> {
    source: &'a Source,
    table: &'a str,
    /// `chap` or `mutual`.
    prefix: &'a str,
}

impl Side<'_> {
    fn field(&self, name: &str) -> String {
        format!("{}.{}-{name}", self.table, self.prefix)
    }

    /// What is wrong with a value. One that should name a file or variable and names none may be
    /// the secret itself.
    fn error<V>(&self, name: &str, value: &Spanned<String>, problem: impl Display) -> Result<V> {
        let field = self.field(name);
        let harmless = match name {
            "secret-file" => {
                let named = path_of_file(self.source, value.get_ref());
                named.as_deref().is_ok_and(|named| is_shown(value.get_ref(), named))
                    || is_file(value.get_ref())
            }
            "secret-env" => variable(value.get_ref()).is_some(),
            _ => shown_user(value.get_ref()) == *value.get_ref(),
        };
        Err(match harmless {
            true => self.source.error(&field, value, problem).into(),
            false => self.source.secret_error(&field, value, problem).into(),
        })
    }

    fn read(
        &self,
        user: Option<&Spanned<String>>,
        file: Option<&Spanned<String>>,
        env: Option<&Spanned<String>>,
        accounts: &mut Accounts,
    ) -> Result<Option<Credentials>> {
        let prefix = self.prefix;
        let secret = match (file, env) {
            (Some(_), Some(env)) => {
                let problem =
                    format!("the secret comes from {prefix}-secret-file already; one will do");
                return self.error("secret-env", env, problem);
            }
            (Some(path), None) => {
                let named = path_of_file(self.source, path.get_ref());
                let secret = named.and_then(|named| {
                    let shown = is_shown(path.get_ref(), &named);
                    accounts.secret_file(&named, shown)
                });
                Some(secret.or_else(|problem| self.error("secret-file", path, problem))?)
            }
            (None, Some(name)) => {
                let secret = secret_of_environment(name.get_ref());
                Some(secret.or_else(|problem| self.error("secret-env", name, problem))?)
            }
            (None, None) => None,
        };
        match (user, secret) {
            (None, None) => Ok(None),
            (Some(user), Some(secret)) => {
                let credentials = Credentials::new(user.get_ref().clone(), secret);
                credentials.map(Some).or_else(|problem| self.error("user", user, problem))
            }
            (Some(user), None) => {
                let problem = format!(
                    "it has no secret; add {prefix}-secret-file = \"/etc/lunwire/secret\", for \
                     example, or {prefix}-secret-env"
                );
                self.error("user", user, problem)
            }
            (None, Some(_)) => {
                let problem = format!("it belongs to nobody; add {prefix}-user");
                match (file, env) {
                    (Some(path), _) => self.error("secret-file", path, problem),
                    (None, Some(name)) => self.error("secret-env", name, problem),
                    (None, None) => Ok(None),
                }
            }
        }
    }
}

pub(crate) fn secret_of_environment(name: &str) -> Result<Secret, String> {
    let missing = || format!("there is no such environment variable; {NOT_SHOWN}");
    let value = variable(name).ok_or_else(missing)?;
    Secret::from_text(value.as_bytes()).map_err(|error| error.to_string())
}

fn variable(name: &str) -> Option<OsString> {
    // A name with these would be no name to the system.
    if name.contains(['=', '\0']) { None } else { std::env::var_os(name) }
}

/// An option and its value, unless that names no file: it may be the secret itself.
pub(crate) fn shown_file(flag: &str, path: &str) -> String {
    if is_shown(path, path) { format!("{flag} {path}") } else { flag.to_owned() }
}

/// An option and its value, unless that names no variable: it may be the secret itself.
pub(crate) fn shown_variable(flag: &str, name: &str) -> String {
    if variable(name).is_some() { format!("{flag} {name}") } else { flag.to_owned() }
}

/// Whether `text`, which means the file `path`, is the path of one and not the secret itself: it is
/// there, or it has folders before its name of which the first one is (the last one, where it does
/// not begin at the root).
fn is_shown(text: &str, path: &str) -> bool {
    let inner = text.strip_prefix('/').map(|inner| inner.split_once('/'));
    let has_folder = match inner {
        Some(Some((first, _))) => !first.is_empty() && Path::new("/").join(first).is_dir(),
        Some(None) => false,
        None => text.contains('/') && Path::new(path).parent().is_some_and(Path::is_dir),
    };
    has_folder || is_file(path)
}

fn is_file(path: &str) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

/// A user without what may be a secret behind it.
pub(crate) fn shown_user(user: &str) -> String {
    match user.split_once('%') {
        Some((user, _)) => format!("{user}%***"),
        None => user.to_owned(),
    }
}

/// Whether an initiator could log in with this account.
fn check_account(demand: Demand, account: Option<&Account>) -> Result<(), &'static str> {
    match account {
        None => Err("it could never log in: authentication is required and there is no chap-user \
                     for it; add one, or say authentication = \"optional\""),
        Some(account) if demand == Demand::Mutual && account.target().is_none() => Err(
            "it could never log in: authentication is \"mutual\" and there is no mutual-user for \
                 it; add one, or say authentication = \"required\"",
        ),
        Some(_) => Ok(()),
    }
}

fn algorithms(
    source: &Source,
    field: &str,
    list: &Option<Spanned<Vec<Spanned<String>>>>,
) -> Result<Vec<Algorithm>> {
    let Some(list) = list else { return Ok(Algorithm::ALL.to_vec()) };
    let right = "sha3-256, sha256, sha1 and md5 are right";
    if list.get_ref().is_empty() {
        let empty = Spanned::new(list.span(), "[]");
        return Err(source.error(field, &empty, format!("nobody could log in; {right}")).into());
    }
    let known = |name: &String| {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name).ok_or(right)
    };
    list.get_ref().iter().map(|name| checked(source, field, name, known)).collect()
}
