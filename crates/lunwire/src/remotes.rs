// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks of other targets that are served again: how the daemon logs in to them.

use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use initiator::Config;
use initiator::Disk;
use initiator::Error;
use initiator::Frames;
use initiator::Initiator;
use initiator::Kind;
use initiator::Options;
use initiator::Paths;
use initiator::Url;
use iscsi::initiator::LoginError;
use iscsi::initiator::SessionError;
use remote::Remote;
use remote::Using;
use store::spec::RemoteSpec;
use target::OpenRemote;
use target::RemoteRefused;
use target::Remotes;
use wire::scsi::sam::BUSY;

use crate::client;
use crate::client::refusal;
use crate::client::refusal::Identity;
use crate::client::same;
use crate::credentials::Accounts;
use crate::remains::Remains;

/// How long to try to log in for the first time.
const FIRST_PATIENCE: Duration = Duration::from_secs(10);

/// How long to wait for the end of what is under way since an outage that may be over.
const SETTLING: Duration = Duration::from_secs(5);

/// The initiator of a daemon, which is started with the first disk.
#[derive(Debug, Default)]
pub(crate) struct Opener {
    started: Mutex<Option<Initiator>>,
    /// Where sessions are remembered.
    state: Option<PathBuf>,
    used: Mutex<Vec<Used>>,
}

/// A disk that was opened, also when its LUN was removed since.
#[derive(Debug)]
struct Used {
    name: String,
    place: String,
    using: Using,
}

impl Remotes for Opener {
    fn open(&self, spec: &RemoteSpec) -> Result<OpenRemote, RemoteRefused> {
        self.log_in(spec).map_err(|error| RemoteRefused(format!("{error:#}")))
    }
}

impl Opener {
    /// Ends what a process before it has left, if there is a folder of `state`.
    pub(crate) fn with_state(state: Option<&Path>) -> Self {
        Self { state: state.map(Path::to_path_buf), ..Self::default() }
    }

    fn log_in(&self, spec: &RemoteSpec) -> Result<OpenRemote> {
        let address = client::disk_address(&spec.url)?;
        let url = address.first().context("there is no URL")?.clone();
        let mut accounts = Accounts::default();
        let mut options_of = |url: &Url| {
            Ok(Options {
                connect_patience: FIRST_PATIENCE,
                // Hosts give up by themselves.
                reconnect_patience: spec.wait.unwrap_or(Duration::MAX),
                account: accounts.of_remote(url, spec)?,
                ..Options::of_url(url)
            })
        };
        let mut remains = self.state.as_deref().map(Remains::of_a_disk);
        let mut paths = Vec::new();
        for url in address.urls() {
            let mut options = options_of(url)?;
            if let Some(remains) = &mut remains {
                remains.remember(url, &mut options);
            }
            paths.push((options, url.lun.unwrap_or(0)));
        }
        let identity = Identity::of(&paths.first().context("there is no URL")?.0);
        let initiator = self.initiator()?;
        let session = match paths.len() {
            1 => initiator.connect(paths.remove(0).0),
            _ => initiator.connect_paths(Paths::new(paths)),
        };
        let session = session.map_err(|error| advised(error, &url, &identity))?;
        let lun = url.lun.unwrap_or(0);
        let disk = Disk::open(&session, lun).map_err(|error| advised(error, &url, &identity))?;
        let named = same::name_of(&session, &url);
        let named = named.map_err(|error| advised(error, &url, &identity))?;
        self.expect_settled(&named)?;
        if let Some(remains) = remains {
            remains.end(&named, &initiator, options_of)?;
        }
        accounts.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
        let place = address.to_string();
        for Frames { interface, by, .. } in address.urls().filter_map(Url::frames) {
            tracing::info!(interface, frames = by, "{place} is had over raw Ethernet");
        }
        let remote = Remote::new(session, disk, &place, spec.busy)?;
        let (block, using) = (remote.block(), remote.using());
        self.used().push(Used { name: named.clone(), place, using });
        Ok(OpenRemote { store: Arc::new(remote), block, identity: named })
    }

    /// Refuses a disk to which something is under way by a session of this process that is lost:
    /// that session would carry it out when it is back, whatever was written since.
    fn expect_settled(&self, name: &str) -> Result<()> {
        let mut used = self.used();
        used.retain(|used| !used.using.is_over());
        let busy = used.iter().find(|used| used.name == name && !used.using.settles(SETTLING));
        if let Some(Used { place, .. }) = busy {
            bail!(
                "{place} is the same disk, whose target is away: requests to it are under way, \
                 though its LUN may have been removed, and would come over what is written from \
                 now on; try: again when that target answers"
            );
        }
        Ok(())
    }

    fn used(&self) -> MutexGuard<'_, Vec<Used>> {
        // What the lock guards is whole between any two statements.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn initiator(&self) -> Result<Initiator> {
        // What the lock guards is whole between any two statements.
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(initiator) = &*started {
            return Ok(initiator.clone());
        }
        let initiator = Initiator::start(&Config { spin_max: Duration::ZERO, ..Config::default() })
            .context("cannot start an initiator; try: lunwire explain")?;
        Ok(started.insert(initiator).clone())
    }
}

/// An error with what to do about it, where there is something to do.
fn advised(error: Error, url: &Url, identity: &Identity) -> anyhow::Error {
    match advice(error.kind(), identity.initiator()) {
        Some(advice) => anyhow!("{url}: {}; {advice}", client::besides(&error, url)),
        None => refusal::advised(error, url, identity),
    }
}

/// Where those who use a disk have options of their command, a store has those of its own.
fn advice(kind: &Kind, initiator: &str) -> Option<String> {
    Some(match kind {
        Kind::Login(LoginError::Refused(0x0202)) => {
            format!("we are {initiator}; try: add this name to the list of the target")
        }
        Kind::Login(LoginError::Refused(0x0201) | LoginError::AuthMethod) => format!(
            "we are {initiator}; try: another USER@ before the host, or secret-file=FILE behind \
             the URL"
        ),
        Kind::Login(LoginError::Chap(_) | LoginError::AuthenticationSkipped) => {
            "try: another mutual-user= or mutual-secret-file=, if you trust the target".to_owned()
        }
        Kind::Login(LoginError::DigestRequired(key)) => {
            let option = if *key == "HeaderDigest" { "header_digest" } else { "data_digest" };
            format!("try: ?{option}=crc32c in the URL")
        }
        Kind::Login(LoginError::Timeout) | Kind::Session(SessionError::TextTimeout(_)) => {
            "is it an iSCSI target that listens there, and the port right?".to_owned()
        }
        Kind::Session(_) => "try: again".to_owned(),
        Kind::Status { status: BUSY, .. } => {
            "its store does not answer, or it has more to do than it takes; try: again later"
                .to_owned()
        }
        _ => return None,
    })
}

/// The size of a disk of another target, which is asked for it.
pub(crate) fn bytes_of(spec: &RemoteSpec) -> Result<u64> {
    let OpenRemote { store, .. } = Opener::default().open(spec)?;
    let bytes = store.geometry().bytes;
    // Nothing was written.
    let _ = store.finish();
    Ok(bytes)
}
