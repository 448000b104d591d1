// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A server of NFS in user space, `ganesha.nfsd`, that exports a folder, and a client that loads
//! it.

mod client;
mod xdr;

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Error;
use crate::programs::{self, installed};
pub(crate) use client::{Client, Handle};

/// It answers after so long.
const BEGIN_MOST: Duration = Duration::from_secs(20);

/// And has ended after so long.
const END_MOST: Duration = Duration::from_secs(15);

/// Who does not answer within this is not there.
const CONNECT_MOST: Duration = Duration::from_secs(1);

/// Where ganesha looks for the file system of what it exports.
const MOUNTS: &str = "/etc/mtab";

/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// What it exports has this name.
const EXPORT: &str = "lab";

/// Where its programs are.
#[derive(Debug)]
pub(crate) struct Programs {
    server: PathBuf,
}

impl Programs {
    /// What they need, where they cannot run.
    pub(crate) fn find() -> Result<Self, String> {
        let server = installed("ganesha.nfsd", "nfs-ganesha")?;
        if !is_root() {
            return Err("nfs-ganesha needs root: it opens files by their handles".to_owned());
        }
        match has_mounts(Path::new(MOUNTS)) {
            true => Ok(Self { server }),
            false => Err(format!(
                "nfs-ganesha needs {MOUNTS}, where it reads what is mounted, and which is missing \
                 or empty here (ln -sf ../proc/self/mounts {MOUNTS})"
            )),
        }
    }
}

/// Without it ganesha runs, and exports nothing. Small systems have none.
fn has_mounts(file: &Path) -> bool {
    fs::read_to_string(file).is_ok_and(|mounts| !mounts.trim().is_empty())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A server that runs.
#[derive(Debug)]
pub(crate) struct Server {
    process: Child,
    port: u16,
    /// With its orders and its log.
    folder: PathBuf,
    is_over: bool,
}

impl Server {
    /// Exports `exported` at `address` of the calling thread's network; its own files are in
    /// `folder`, which is made.
    pub(crate) fn start(
        programs: &Programs,
        exported: &Path,
        folder: &Path,
        address: Ipv4Addr,
    ) -> Result<Self, Error> {
        fs::create_dir(folder).map_err(Error::rig)?;
        // It cannot choose a port itself. Who takes this one meanwhile makes it fail, and is told.
        let port = TcpListener::bind((address, 0)).and_then(|bound| bound.local_addr());
        let port = port.map_err(Error::rig)?.port();
        let [orders, log, said] = ["orders", "log", "said"].map(|name| folder.join(name));
        fs::write(&orders, orders_of(exported, folder, (address, port).into()))
            .map_err(Error::rig)?;
        let said = File::create(said).map_err(Error::rig)?;
        let process = Command::new(&programs.server)
            .arg("-F")
            .args([Path::new("-f"), &orders, Path::new("-L"), &log])
            .args([Path::new("-p"), &folder.join("pid")])
            .stdin(Stdio::null())
            .stdout(said.try_clone().map_err(Error::rig)?)
            .stderr(said)
            .process_group(0)
            .spawn()
            .map_err(Error::rig)?;
        let mut server = Self { process, port, folder: folder.to_owned(), is_over: false };
        let until = Instant::now() + BEGIN_MOST;
        while TcpStream::connect_timeout(&(address, port).into(), CONNECT_MOST).is_err() {
            let ended = server.process.try_wait().map_err(Error::rig)?;
            if ended.is_some() || Instant::now() >= until {
                return Err(Error::Rig(format!("ganesha.nfsd does not begin: {}", server.log())));
            }
            std::thread::sleep(LOOK);
        }
        Ok(server)
    }

    pub(crate) fn process(&self) -> u32 {
        self.process.id()
    }

    /// A client with this name, and what is exported.
    pub(crate) fn connect(&self, address: Ipv4Addr, name: &str) -> Result<(Client, Handle), Error> {
        let told = |error| Error::Rig(format!("NFS: {error}; {}", self.log()));
        let server = SocketAddr::from((address, self.port));
        let mut client = Client::connect(server, name).map_err(told)?;
        let root = client.root(EXPORT).map_err(told)?;
        Ok((client, root))
    }

    /// Lets it end.
    pub(crate) fn end(mut self) -> Result<(), Error> {
        self.stop()
    }

    fn stop(&mut self) -> Result<(), Error> {
        self.is_over = true;
        programs::end(&mut self.process, "ganesha.nfsd", END_MOST)
    }

    /// What it complained of first: what follows is of that, as a rule.
    fn log(&self) -> String {
        let read = |name| fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        complaints(&(read("log") + &read("said")))
    }
}

/// The first complaints of a log, without time and process.
fn complaints(log: &str) -> String {
    let is_bad = |line: &&str| [":CRIT", ":FATAL", ":MAJ"].iter().any(|bad| line.contains(bad));
    let text = |line: &'_ str| line.split_once("] ").map_or(line, |(_, text)| text).to_owned();
    let lines: Vec<String> = log.lines().filter(is_bad).take(2).map(text).collect();
    lines.join("; ")
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.is_over {
            // An error before this one is told.
            let _ = self.stop();
        }
    }
}

/// NFS 4.1 over TCP alone, which needs no rpcbind, no lock manager and no Kerberos; what it would
/// have to remember stays in its own folder.
fn orders_of(exported: &Path, folder: &Path, at: SocketAddr) -> String {
    format!(
        "NFS_CORE_PARAM {{ NFS_Port = {port}; Bind_addr = {address}; Protocols = 4; Enable_NLM = \
         false; Enable_RQUOTA = false; Enable_UDP = false; }}\n\
         NFSv4 {{ Minor_Versions = 1; Graceless = true; RecoveryBackend = fs; RecoveryRoot = \
         \"{folder}\"; }}\n\
         NFS_KRB5 {{ Active_krb5 = false; }}\n\
         EXPORT {{ Export_Id = 1; Path = \"{exported}\"; Pseudo = \"/{EXPORT}\"; Access_Type = \
         RW; Squash = No_Root_Squash; Protocols = 4; Transports = TCP; SecType = sys; FSAL {{ Name \
         = VFS; }} }}\n\
         LOG {{ Default_Log_Level = MAJ; }}\n",
        port = at.port(),
        address = at.ip(),
        folder = folder.display(),
        exported = exported.display(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_table_of_mounts_it_is_not_begun() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("mtab");
        assert!(!has_mounts(&file));
        fs::write(&file, "\n").expect("an empty table");
        assert!(!has_mounts(&file));
        fs::write(&file, "proc /proc proc rw 0 0\n").expect("a table");
        assert!(has_mounts(&file));
    }

    #[test]
    fn the_first_complaint_is_told() {
        let log = "28/11/2026 18:08:31 : epoch 6b0b189f : vm : nfs-ganesha-1[main] main :MAIN \
                   :EVENT :starting\n\
                   28/11/2026 18:08:31 : epoch 6b0b189f : vm : nfs-ganesha-1[main] a :FSAL :CRIT \
                   :Error 2 in setmntent\n\
                   28/11/2026 18:08:31 : epoch 6b0b189f : vm : nfs-ganesha-1[main] b :FSAL :CRIT \
                   :of that\n\
                   28/11/2026 18:08:31 : epoch 6b0b189f : vm : nfs-ganesha-1[main] c :CONFIG :CRIT \
                   :of that, too\n";
        assert_eq!(complaints(log), "a :FSAL :CRIT :Error 2 in setmntent; b :FSAL :CRIT :of that");
    }

    #[test]
    fn a_server_takes_what_a_load_asks_for_or_says_what_it_needs() {
        let programs = match Programs::find() {
            Ok(programs) => programs,
            Err(why) => return assert!(why.contains("need"), "{why}"),
        };
        let folder = tempfile::tempdir().expect("a folder");
        let [exported, state] = ["exported", "state"].map(|name| folder.path().join(name));
        fs::create_dir(&exported).expect("a folder");
        let local = Ipv4Addr::LOCALHOST;
        let server = match Server::start(&programs, &exported, &state, local) {
            Ok(server) => server,
            // Some file systems have no handles.
            Err(error) => return assert!(error.to_string().contains("begin"), "{error}"),
        };
        let (mut client, root) = server.connect(local, "one").expect("a session");
        let (other, _) = server.connect(local, "other").expect("another one");
        let file = client.create(&root, "a file").expect("made");
        assert_eq!(client.look_up(&root, "a file").expect("found"), file);
        client.write(&file, 4096, b"lunwire").expect("written");
        client.commit(&file).expect("on the disk");
        let mut data = [0; 16];
        assert_eq!(client.read(&file, 4090, &mut data).expect("read"), 13);
        assert_eq!(&data[..13], b"\0\0\0\0\0\0lunwire");
        assert_eq!(fs::read(exported.join("a file")).expect("it is there").len(), 4103);
        assert!(client.attributes(&file).expect("told") >= 24);
        assert!(client.access(&file).expect("told") > 0);
        client.set_mode(&file).expect("set");
        assert_eq!(client.read_folder(&root).expect("told"), ["a file"]);
        client.remove(&root, "a file").expect("removed");
        let gone = client.look_up(&root, "a file").expect_err("it is gone");
        assert!(gone.to_string().contains("operation 15 of NFS failed: status 2"), "{gone}");
        assert_eq!(gone.kind(), std::io::ErrorKind::NotFound);
        client.end().and_then(|()| other.end()).expect("both are over");
        server.end().expect("it ends");
    }

    #[test]
    fn what_is_exported_and_where_is_in_the_orders() {
        let of = |address| orders_of(Path::new("/a"), Path::new("/b"), (address, 7).into());
        assert!(of(Ipv4Addr::LOCALHOST).contains("NFS_Port = 7; Bind_addr = 127.0.0.1;"));
        assert!(of(Ipv4Addr::LOCALHOST).contains("Path = \"/a\";"));
    }
}
