// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the daemon has given up when it serves, and what that leaves for what comes later.
//!
//! It is put on before the first thread is started, since landlock holds for the thread that puts
//! it on and for those that this one starts: so disks are opened and portals listened on under it.

use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;
use engine::files::folder_of;
use sandbox::Reach;
use sandbox::Refused;
use target::StateFolder;

use crate::args::ServeOptions;
use crate::control_socket;
use crate::output;
use crate::plan::Draft;
use crate::plan::DraftLun;
use crate::plan::Need;
use crate::plan::Wish;
use crate::plan::real;

/// Before this version of Linux a filter of system calls switches on what protects from other
/// programs of the same processor (SSBD, STIBP), which serving pays for.
const FREE_SINCE: (u32, u32) = (5, 16);

/// As the C library says it, and as files do.
const DENIED: [&str; 2] = ["Permission denied", "no permission to"];

/// In words of the control socket.
const CALLS: &str = "calls";

/// As the engine says that no program can be loaded into the kernel.
const PROGRAM_REFUSED: &str = "(bpf): Operation not permitted";

const ALLOW: &str = "--sandbox-allow";

/// What is on; clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sandbox(Arc<Held>);

#[derive(Debug, Default)]
struct Held {
    given_up: Vec<&'static str>,
    /// Why something is not.
    missing: Vec<String>,
    /// What is left; None: everything.
    left: Option<Reach>,
}

impl Sandbox {
    /// Gives up what `draft` says, for this thread and those that it starts.
    ///
    /// # Errors
    /// It is to be, and the kernel does not let us.
    pub(crate) fn put_on(draft: &Draft, options: &ServeOptions) -> Result<Self> {
        if draft.sandbox == Wish::No {
            return Ok(Self::default());
        }
        rustix::thread::set_no_new_privs(true).context("cannot give up new privileges")?;
        let mut held = Held { given_up: vec!["privileges"], ..Held::default() };
        match draft.sandbox {
            Wish::No => {}
            Wish::Yes => {
                if let Some(folder) = draft.state_dir.as_deref().filter(|folder| !folder.exists()) {
                    // What it is made in is out of reach then.
                    drop(StateFolder::take(folder)?);
                }
                let socket = draft.control_socket.clone().or_else(control_socket::default_path);
                let reach = draft.reach(options.config.as_deref(), socket.as_deref());
                held.refuse_calls().map_err(needed)?;
                held.confine(&reach).map_err(needed)?;
                held.left = Some(reach);
            }
            Wish::Auto => {
                let system = rustix::system::uname();
                let calls = match is_free(&system.release().to_string_lossy()) {
                    true => held.refuse_calls().map_err(|error| error.to_string()),
                    false => Err("before Linux 5.16, seccomp makes all work slower; try: \
                                  --sandbox=yes to have it"
                        .into()),
                };
                held.missing.extend(calls.err());
                let confined = held.confine(&Reach::default());
                held.missing.extend(confined.err().map(|error| error.to_string()));
            }
        }
        Ok(Self(Arc::new(held)))
    }

    /// Says in the log what could not be given up.
    pub(crate) fn tell(&self) {
        for missing in &self.0.missing {
            tracing::info!("sandbox: {missing}");
        }
        tracing::debug!(given_up = ?self.0.given_up, "sandbox");
    }

    /// What is given up, in words of the control socket.
    pub(crate) fn held(&self) -> impl Iterator<Item = &'static str> {
        self.0.given_up.iter().copied()
    }

    /// Whether nobody can load a program into the kernel any more.
    pub(crate) fn refuses_calls(&self) -> bool {
        self.0.given_up.contains(&CALLS)
    }

    /// The error, and what may be behind it: a secret in another folder, or what Ceph reads.
    pub(crate) fn hint(&self, error: anyhow::Error) -> anyhow::Error {
        let said = output::chain(&error);
        if self.refuses_calls() && said.contains(PROGRAM_REFUSED) {
            let what = said.split("; try:").next().unwrap_or(&said);
            return anyhow!(
                "{what}: the sandbox (--sandbox) refuses AF_XDP to disks that come after the \
                 start; try: have the disk in what the daemon is started with, start it with \
                 --sandbox=no, or frames=packet in the URL"
            );
        }
        let may_be = DENIED.iter().any(|it| said.contains(it)) || said.contains("rbd:");
        // What else there is to try would not help.
        let what = said.split("; try:").next().unwrap_or(&said);
        match self.0.left.is_some() && may_be && !said.contains(ALLOW) {
            true => anyhow!(
                "{what}; the sandbox (--sandbox) leaves what was named at the start; try: start \
                 the daemon with {ALLOW} FOLDER (sandbox-allow), or with --sandbox=auto"
            ),
            false => error,
        }
    }

    /// Whether a disk can be opened that comes now; the error says what to do.
    pub(crate) fn admits(&self, lun: &DraftLun) -> Result<(), String> {
        lun.needs().iter().try_for_each(|need| self.admits_need(need))
    }

    /// Whether a file can be made, or changed.
    pub(crate) fn admits_file(&self, path: &Path) -> Result<(), String> {
        self.admits_need(&Need::Change(path.into()))
    }

    /// Whether a portal can be listened on.
    pub(crate) fn admits_port(&self, port: u16) -> Result<(), String> {
        let ports = self.0.left.as_ref().and_then(|left| left.listen.as_ref());
        match ports.is_none_or(|ports| ports.contains(&port)) {
            true => Ok(()),
            false => self.admits_need(&Need::Portals),
        }
    }

    fn admits_need(&self, need: &Need) -> Result<(), String> {
        let Some(left) = &self.0.left else { return Ok(()) };
        let Some(files) = &left.files else { return Ok(()) };
        let (is_left, what, word) = match need {
            Need::Read(path) => {
                let is_left = is_within(path, files.read.iter().chain(&files.change));
                (is_left, path.display().to_string(), word_for(path))
            }
            Need::Change(path) => {
                let is_left = is_within(path, files.change.iter());
                (is_left, path.display().to_string(), word_for(path))
            }
            Need::Connections => {
                (!left.no_connections, "connections to other machines".into(), "connect".into())
            }
            Need::Portals => {
                let what = "other ports than those of the start".into();
                (left.listen.is_none(), what, "listen".into())
            }
        };
        if is_left {
            return Ok(());
        }
        Err(format!(
            "{what}: out of reach since the start, for the sandbox (--sandbox); try: start the \
             daemon with {ALLOW} {word} (sandbox-allow), or with --sandbox=auto"
        ))
    }
}

impl Held {
    fn confine(&mut self, reach: &Reach) -> Result<(), Refused> {
        let confined = sandbox::confine(reach)?;
        let given_up = [
            ("programs", true),
            ("signals", confined.signals),
            ("files", confined.files),
            ("ports", confined.ports),
        ];
        self.given_up.extend(given_up.iter().filter(|(_, is)| *is).map(|(word, _)| word));
        if !confined.ports && reach.files.is_some() {
            self.missing.push("ports are as without it: landlock has them since Linux 6.7".into());
        }
        Ok(())
    }

    fn refuse_calls(&mut self) -> Result<(), Refused> {
        sandbox::refuse_calls()?;
        self.given_up.push(CALLS);
        Ok(())
    }
}

fn needed(refused: Refused) -> anyhow::Error {
    anyhow!("--sandbox (sandbox): {refused}; try: --sandbox=auto, which does what there is")
}

/// Whether a filter of system calls costs nothing on this release of Linux.
fn is_free(release: &str) -> bool {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    let mut next = || numbers.next().and_then(|number| number.parse::<u32>().ok()).unwrap_or(0);
    (next(), next()) >= FREE_SINCE
}

/// What leaves `path` to a daemon: a file that is to be made is none yet, and its folder is.
fn word_for(path: &Path) -> String {
    let is_there = std::fs::symlink_metadata(path).is_ok();
    let word = if is_there { path } else { folder_of(path) };
    word.display().to_string()
}

fn is_within<'a>(path: &Path, mut allowed: impl Iterator<Item = &'a PathBuf>) -> bool {
    let path = real(path);
    allowed.any(|allowed| path.starts_with(allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_by_af_xdp_that_comes_later_is_told_of_the_sandbox() {
        let said = "ether://02:00:5e:10:00:01%i0/a/0?frames=xdp: AF_XDP at i0: a map of sockets \
                    (bpf): Operation not permitted (os error 1); try: as root, or with \
                    CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF";
        let held = Held { given_up: vec![CALLS], ..Held::default() };
        let hinted = Sandbox(Arc::new(held)).hint(anyhow!("{said}")).to_string();
        assert!(hinted.contains("AF_XDP at i0") && hinted.contains("--sandbox=no"), "{hinted}");
        assert!(!hinted.contains("as root"), "that would not help: {hinted}");
        assert_eq!(Sandbox::default().hint(anyhow!("{said}")).to_string(), said);
    }

    /// One that came by an order to a process without a sandbox, and that takes one over with it.
    #[test]
    fn a_file_out_of_reach_is_told_of_the_sandbox() {
        let path = Path::new("/srv/more/disk").to_owned();
        let error =
            || engine::files::FileError::Permission { path: path.clone(), read_only: false };
        let held = Held { left: Some(Reach::default()), ..Held::default() };
        let hinted = Sandbox(Arc::new(held)).hint(error().into()).to_string();
        assert!(hinted.contains("/srv/more/disk") && hinted.contains(ALLOW), "{hinted}");
        assert!(!hinted.contains("chown"), "that would not help: {hinted}");
        assert_eq!(Sandbox::default().hint(error().into()).to_string(), error().to_string());
    }

    #[test]
    fn a_filter_is_free_since_5_16() {
        for (release, is) in [
            ("4.18.0-553.el8_10.x86_64", false),
            ("5.15.0-91-generic", false),
            ("5.16", true),
            ("6.1.0-18-amd64", true),
            ("10.0-rc1", true),
            ("", false),
        ] {
            assert_eq!(is_free(release), is, "{release:?}");
        }
    }
}
