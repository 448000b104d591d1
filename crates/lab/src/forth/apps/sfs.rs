// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A server of NFS on a file system there, under a load like that of SPEC SFS97: requests at rates
//! that rise until it is saturated.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::Advice;

use super::Outcome;
use super::account::Look;
use super::disks::{Disks, Mounted, Writes};
use crate::Error;
use crate::forth::{Place, scattered, theirs};
use crate::measure::real;
use crate::nfs::{Client, Handle, Programs, Server};
use crate::progress::Steps;
use crate::study::Settings;

/// Who asks at once, each over a connection of his own.
const CLIENTS: usize = 8;

/// What a READ or a WRITE carries, bytes.
const DATA: usize = 8 << 10;

/// Bytes of a file.
const FILE: u64 = 64 << 10;

/// What a run tells of the answers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answers {
    /// In a second.
    pub(crate) rate: f64,
    /// Mean, from the call on.
    pub(crate) response_us: f64,
}

/// Runs all rates at all places in turn.
pub(crate) fn measure(settings: &Settings, steps: &Steps<'_>) -> Result<Outcome, Error> {
    let files: u64 = settings.effort.of(20, 200, 800);
    let bytes = settings.effort.of(4, 8, 32) << 20;
    let time = Duration::from_millis(settings.effort.of(20, 400, 2000));
    let parts = settings.effort.of(&[50, 120][..], &[25, 50, 75, 100, 125], &PARTS_OF_ALL);
    let rounds = settings.rounds([1, 3, 5]);
    let programs = match Programs::find() {
        Ok(programs) => programs,
        Err(why) => return Ok(Outcome::nothing(why)),
    };
    let disks = match Disks::start(settings.program.as_deref(), bytes) {
        Ok(disks) => disks,
        Err(why) => return Ok(Outcome::nothing(why)),
    };
    let load = Load { files, time };
    steps.expect(1);
    steps.next("SFS, as much as can be: direct")?;
    let most = match load.at(&programs, &disks, Place::Direct, |exported| exported.run(None, steps))
    {
        Ok((answers, _)) => answers.rate,
        Err(Error::Stopped) => return Err(Error::Stopped),
        Err(error) => return Ok(Outcome::nothing(format!("it needs a server of NFS: {error}"))),
    };
    let rates: Vec<f64> =
        parts.iter().map(|part| rounded(most * f64::from(*part) / 100.0)).collect();
    let places = disks.places();
    let items = rates.iter().map(|rate| format!("{rate:.0}/s")).collect();
    let mut outcome = Outcome::expect(items, &places);
    outcome.preface.push(format!(
        "SFS: nfs-ganesha exports a new ext4 of {} MiB by NFS 4.1; {CLIENTS} connections of a load \
         of our own have it look up (35 %), read (18), tell attributes (12), list folders (11), \
         write (9), check access (7), commit (5), make, remove and change files (1 each): the mix \
         of SFS97_R1 for NFS 3, whose links are looked up. {files} files of {} KiB, {} KiB at a \
         time, and the system forgets their pages before each rate. Rates are {} % of what can be \
         had direct at most, {rounds} runs of {} ms each, medians; the study's began at 500 a \
         second and rose by 100. A response is from the call to its answer. The load runs on this \
         machine, too, over loopback.",
        (bytes * theirs::DISKS as u64) >> 20,
        FILE >> 10,
        DATA >> 10,
        parts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        time.as_millis(),
    ));
    steps.expect(rounds * outcome.cases.len());
    for _ in 0..rounds {
        for &place in &places {
            let ran = load.at(&programs, &disks, place, |exported| {
                let run = |rate: &f64| {
                    steps.next(&format!("SFS, {rate:.0}/s: {}", place.name()))?;
                    exported.run(Some(*rate), steps)
                };
                rates.iter().map(run).collect::<Result<Vec<_>, Error>>()
            });
            let ran = match ran {
                Err(Error::Stopped) => return Err(Error::Stopped),
                // The rest of the study is none the worse for it.
                Err(error) => return Ok(Outcome::nothing(format!("NFS failed here: {error}"))),
                Ok(ran) => ran,
            };
            let cases = outcome.cases.iter_mut().filter(|case| case.place == place);
            for (case, (answers, spent)) in cases.zip(ran) {
                case.answers.push(answers);
                case.spent.push(spent);
            }
        }
    }
    outcome.lacking.clone_from(&disks.lacking);
    disks.end()?;
    Ok(outcome)
}

/// Percent of the most, with all effort.
const PARTS_OF_ALL: [u32; 10] = [15, 30, 45, 60, 70, 80, 90, 100, 110, 130];

/// To two digits, as people choose rates.
fn rounded(rate: f64) -> f64 {
    let unit = 10_f64.powf(rate.max(10.0).log10().floor() - 1.0);
    (rate / unit).round().max(1.0) * unit
}

/// How much of it.
#[derive(Clone, Copy, Debug)]
struct Load {
    files: u64,
    time: Duration,
}

/// A server with its files, and who asks it.
struct Exported<'a> {
    load: Load,
    mounted: &'a Mounted<'a>,
    folder: &'a Path,
    server: &'a Server,
    clients: Vec<Client>,
    root: Handle,
    files: Vec<Handle>,
}

impl Load {
    /// Does `what` with a server on a new file system at `place`.
    fn at<T>(
        self,
        programs: &Programs,
        disks: &Disks,
        place: Place,
        what: impl FnOnce(&mut Exported<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mounted = disks.mount(place, Writes::Later)?;
        let state = tempfile::tempdir_in(disks.folder()).map_err(Error::rig)?;
        let folder = mounted.folder().join("exported");
        fs::create_dir(&folder).map_err(Error::rig)?;
        let local = Ipv4Addr::LOCALHOST;
        let server = Server::start(programs, &folder, &state.path().join("server"), local)?;
        let connect = |number| server.connect(local, &format!("lunwire lab {number}"));
        let sessions = (0..CLIENTS).map(connect).collect::<Result<Vec<_>, Error>>()?;
        let root = sessions.first().map(|(_, root)| root.clone());
        let root = root.ok_or_else(|| Error::rig("nobody asks"))?;
        let clients = sessions.into_iter().map(|(client, _)| client).collect();
        let (load, files) = (self, Vec::new());
        let mut exported = Exported {
            load,
            mounted: &mounted,
            folder: &folder,
            server: &server,
            clients,
            root,
            files,
        };
        let ran = exported.fill().and_then(|()| what(&mut exported));
        let clients = std::mem::take(&mut exported.clients);
        let over = clients.into_iter().try_for_each(|client| client.end().map_err(Error::rig));
        server.end()?;
        mounted.end()?;
        let ran = ran?;
        over.map(|()| ran)
    }
}

impl Exported<'_> {
    fn fill(&mut self) -> Result<(), Error> {
        let client = self.clients.first_mut().ok_or_else(|| Error::rig("nobody asks"))?;
        let data = vec![0x5a; DATA];
        for number in 0..self.load.files {
            let mut make = || {
                let file = client.create(&self.root, &name_of(number))?;
                let mut parts = (0..FILE).step_by(data.len());
                parts.try_for_each(|at| client.write(&file, at, &data))?;
                client.commit(&file)?;
                Ok::<_, std::io::Error>(file)
            };
            self.files.push(make().map_err(Error::rig)?);
        }
        Ok(())
    }

    /// Asks for so much a second, or for as much as can be had.
    fn run(
        &mut self,
        rate: Option<f64>,
        steps: &Steps<'_>,
    ) -> Result<(Answers, super::Spent), Error> {
        self.forget()?;
        let server = Some(self.server.process());
        let look = || Look::now(server, self.mounted.initiator(), &self.mounted.device());
        let before = look();
        let schedule =
            Schedule { begun: Instant::now(), time: self.load.time, rate, next: AtomicU64::new(0) };
        let (root, files, schedule) = (&self.root, &self.files, &schedule);
        let results: Vec<std::io::Result<Counted>> = std::thread::scope(|scope| {
            let work = |client| {
                scope.spawn(move || {
                    // The server has its processor, as others than this one would ask it.
                    let _ = engine::affinity::confine(&engine::affinity::allowed_cpus());
                    ask(client, root, files, schedule, steps)
                })
            };
            let all: Vec<_> = self.clients.iter_mut().map(work).collect();
            let over = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(std::io::Error::other("a client has panicked")))
            };
            all.into_iter().map(over).collect()
        });
        let seconds = schedule.begun.elapsed().as_secs_f64();
        let spent = look().since(&before);
        if steps.is_to_stop() {
            return Err(Error::Stopped);
        }
        let mut all = Counted::default();
        for one in results {
            let one = one.map_err(Error::rig)?;
            (all.calls, all.waited) = (all.calls + one.calls, all.waited + one.waited);
        }
        let calls = real(all.calls.max(1));
        let response_us = all.waited.as_secs_f64() * 1e6 / calls;
        Ok((Answers { rate: real(all.calls) / seconds.max(1e-9), response_us }, spent))
    }

    /// Nothing of the files is in the system's memory any more.
    fn forget(&self) -> Result<(), Error> {
        for entry in fs::read_dir(self.folder).map_err(Error::rig)? {
            let file = File::open(entry.map_err(Error::rig)?.path()).map_err(Error::rig)?;
            file.sync_data().map_err(Error::rig)?;
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).map_err(Error::rig)?;
        }
        Ok(())
    }
}

/// When which call is due.
#[derive(Debug)]
struct Schedule {
    begun: Instant,
    time: Duration,
    /// Calls a second; None: one after the other.
    rate: Option<f64>,
    next: AtomicU64,
}

impl Schedule {
    /// Waits for the next call; None: there is no other.
    fn next(&self) -> Option<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let due = match self.rate {
            None => self.begun.elapsed(),
            Some(rate) => Duration::from_secs_f64(real(number) / rate.max(1.0)),
        };
        if due.max(self.begun.elapsed()) >= self.time {
            return None;
        }
        std::thread::sleep(due.saturating_sub(self.begun.elapsed()));
        Some(number)
    }
}

/// What one client has counted.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    calls: u64,
    waited: Duration,
}

fn ask(
    client: &mut Client,
    root: &Handle,
    files: &[Handle],
    schedule: &Schedule,
    steps: &Steps<'_>,
) -> std::io::Result<Counted> {
    let mut counted = Counted::default();
    let mut made = Vec::new();
    let mut data = vec![0xa5; DATA];
    while let Some(number) = schedule.next().filter(|_| !steps.is_to_stop()) {
        let dice = scattered(number);
        let which = (dice >> 16) % (files.len().max(1) as u64);
        let file = usize::try_from(which).ok().and_then(|which| files.get(which));
        let file = file.ok_or_else(|| std::io::Error::other("no files"))?;
        let offset = (dice >> 40) % (FILE / DATA as u64) * DATA as u64;
        let begun = Instant::now();
        match Call::of(dice % 100) {
            Call::LookUp => drop(client.look_up(root, &name_of(which))?),
            Call::Read => drop(client.read(file, offset, &mut data)?),
            Call::Attributes => drop(client.attributes(file)?),
            Call::List => listed(client.read_folder(root))?,
            Call::Write => client.write(file, offset, &data)?,
            Call::Access => drop(client.access(file)?),
            Call::Commit => client.commit(file)?,
            Call::SetMode => client.set_mode(file)?,
            Call::Remove if !made.is_empty() => {
                made.pop().map_or(Ok(()), |name: String| client.remove(root, &name))?;
            }
            Call::Create | Call::Remove => {
                let name = format!("new-{number}");
                client.create(root, &name)?;
                made.push(name);
            }
        }
        counted.waited += begun.elapsed();
        counted.calls += 1;
    }
    made.iter().try_for_each(|name| client.remove(root, name))?;
    Ok(counted)
}

/// What another client removes while nfs-ganesha lists the folder has it say that there is none.
fn listed(names: std::io::Result<Vec<String>>) -> std::io::Result<()> {
    match names {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        names => names.map(drop),
    }
}

fn name_of(number: u64) -> String {
    format!("file-{number}")
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    LookUp,
    Read,
    Attributes,
    List,
    Write,
    Access,
    Commit,
    Create,
    Remove,
    SetMode,
}

impl Call {
    /// How many of a hundred.
    const MIX: [(Self, u64); 10] = [
        (Self::LookUp, 35),
        (Self::Read, 18),
        (Self::Attributes, 12),
        (Self::List, 11),
        (Self::Write, 9),
        (Self::Access, 7),
        (Self::Commit, 5),
        (Self::Create, 1),
        (Self::Remove, 1),
        (Self::SetMode, 1),
    ];

    fn of(mut percent: u64) -> Self {
        for (call, share) in Self::MIX {
            match percent.checked_sub(share) {
                Some(rest) => percent = rest,
                None => return call,
            }
        }
        Self::LookUp
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_goes_while_the_folder_is_listed_ends_no_load() {
        let failed = |kind: std::io::ErrorKind| listed(Err(kind.into()));
        assert!(listed(Ok(Vec::new())).is_ok() && failed(std::io::ErrorKind::NotFound).is_ok());
        failed(std::io::ErrorKind::Other).expect_err("it is no answer");
    }

    #[test]
    fn the_mix_is_that_of_a_hundred() {
        assert_eq!(Call::MIX.iter().map(|(_, share)| share).sum::<u64>(), 100);
        for (call, share) in Call::MIX {
            let found = (0..100).filter(|percent| Call::of(*percent) == call).count();
            assert_eq!(found as u64, share, "{call:?}");
        }
    }

    #[test]
    fn rates_have_two_digits() {
        let all = [7.3, 94.6, 123.0, 8765.0, 51_499.0].map(rounded);
        assert_eq!(all.map(|rate| rate.round()), [7.0, 95.0, 120.0, 8800.0, 51_000.0]);
    }

    #[test]
    fn calls_are_due_at_their_rate() {
        let new = |rate, time| Schedule {
            begun: Instant::now(),
            time: Duration::from_millis(time),
            rate,
            next: AtomicU64::new(0),
        };
        let schedule = new(Some(1000.0), 20);
        let calls = std::iter::from_fn(|| schedule.next()).count();
        // A machine that is late asks for fewer.
        assert!((1..=20).contains(&calls), "{calls}");
        let fast = new(None, 5);
        assert!(std::iter::from_fn(|| fast.next()).count() > 20, "one after the other");
    }
}
