// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a disk is attached.

use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use anyhow::Result;
use attach::Address;
use attach::Error;
use attach::FuseServer;
use attach::Left;
use attach::NbdServer;
use attach::News;
use engine::Choice;
use initiator::Disk;
use initiator::Session;
use serde_json::Value;
use serde_json::json;

use crate::args::AttachOptions;
use crate::args::Usage;

/// Where the user wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Nbd(Address),
    /// A file in it.
    Folder(PathBuf),
}

/// A disk that is attached.
#[derive(Debug)]
pub(super) enum Served {
    Nbd(NbdServer),
    File(FuseServer),
}

impl Place {
    pub(super) fn of(options: &AttachOptions) -> Result<Self> {
        match (&options.nbd, &options.folder) {
            (Some(text), _) => Ok(Self::Nbd(address(text)?)),
            (None, Some(folder)) => Ok(Self::Folder(folder.clone())),
            (None, None) => Err(Usage("where? try: a directory, or --nbd SOCKET".into()).into()),
        }
    }
}

fn address(text: &str) -> Result<Address> {
    if text.contains("://") {
        let right = "a path, as /run/disk.sock, or HOST:PORT is right";
        return Err(Usage(format!("--nbd {text}: {right}")).into());
    }
    match Address::parse(text) {
        Address::Path(path) if path.as_os_str().is_empty() => {
            Err(Usage("--nbd: it is empty; a path or HOST:PORT is right".into()).into())
        }
        address => Ok(address),
    }
}

impl Served {
    pub(super) fn start(
        place: &Place,
        disk: Disk,
        session: &Session,
        options: &AttachOptions,
        description: &str,
        engine: Choice,
    ) -> Result<(Self, Receiver<News>), Error> {
        let pool = session.pool().clone();
        match place {
            Place::Nbd(address) => {
                let name = &options.name;
                let (server, news) =
                    NbdServer::start(disk, pool, name, description, address, engine)?;
                Ok((Self::Nbd(server), news))
            }
            Place::Folder(folder) => {
                let (server, news) = FuseServer::start(disk, pool, folder)?;
                Ok((Self::File(server), news))
            }
        }
    }

    /// Where it is, for people.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Nbd(server) => server.address().to_owned(),
            Self::File(server) => server.path().display().to_string(),
        }
    }

    /// The same for programs.
    pub(super) fn json(&self) -> (&'static str, Value) {
        let kind = match self {
            Self::Nbd(_) => "nbd",
            Self::File(_) => "file",
        };
        (kind, json!(self.shown()))
    }

    /// Ends it: those who use it have `grace` for what is under way. Gives what they are to know.
    pub(super) fn stop(self, grace: Duration) -> Result<Option<String>, Error> {
        match self {
            Self::Nbd(server) => server.stop(grace).map(|()| None),
            Self::File(server) => {
                let path = server.path();
                let left = server.stop(grace)?;
                let warning = || {
                    format!(
                        "{} was in use: what its users have not written is lost, and they get \
                         errors from now on",
                        path.display()
                    )
                };
                Ok((left == Left::InUse).then(warning))
            }
        }
    }
}
