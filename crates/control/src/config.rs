// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The configuration file: TOML, every field known, every error with file, line, field and value.

use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

use crate::words;

/// A configuration as it stands in a file; meaning is checked by who uses it, through
/// [`Source::error`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// Portals: `ADDRESS:PORT`, IPv6 in brackets. Default `127.0.0.1:3260`.
    #[serde(default)]
    pub listen: Vec<Spanned<String>>,
    /// `auto`, `uring` or `epoll`.
    pub engine: Option<Spanned<String>>,
    /// `smp` (default): each reactor talks to the kernel itself; `amp`: polling cores do that.
    pub mode: Option<Spanned<String>>,
    /// Polling cores of mode `amp`; default one for each reactor.
    pub ppes: Option<Spanned<usize>>,
    /// Whether the polling cores of mode `amp` never sleep; default false.
    pub poll: Option<Spanned<bool>>,
    /// Threads that serve; default 1.
    pub reactors: Option<Spanned<usize>>,
    /// CPUs to pin the threads to, in turn: reactors, then polling cores.
    #[serde(default)]
    pub cpus: Vec<Spanned<usize>>,
    /// Longest busy wait of a reactor before it sleeps, for example `100us`; `0` never spins.
    pub spin: Option<Spanned<String>>,
    /// A login must be over in this time, for example `15s`.
    pub login_timeout: Option<Spanned<String>>,
    /// Sessions that the daemon serves at a time, 1 to 16384 (the default).
    pub sessions_max: Option<Spanned<usize>>,
    /// Connections that have not logged in, and discovery sessions without a proof, at a time, 1 to
    /// 32768; default 4096. With more, the oldest one goes.
    pub unauthenticated_max: Option<Spanned<usize>>,
    /// As many of one address, or of one IPv6 network of 64 bits; default 256.
    pub unauthenticated_per_address: Option<Spanned<usize>>,
    /// Whether a target that an initiator may not use looks to it like one that is not there;
    /// default false.
    pub hide_targets: Option<bool>,
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub log: Option<Spanned<String>>,
    /// Path of the control socket.
    pub control_socket: Option<Spanned<String>>,
    /// Folder for what outlives the daemon: reservations that hosts ask to persist (APTPL).
    pub state_dir: Option<Spanned<String>>,
    /// Name server (iSNS) to register with, `HOST:PORT`.
    pub isns: Option<Spanned<String>>,
    /// What initiators have to prove in discovery sessions.
    pub discovery: Option<Discovery>,
    /// Portal groups beside group 1, which has the portals of `listen`.
    #[serde(default)]
    pub portal_group: Vec<PortalGroup>,
    /// The targets.
    #[serde(default)]
    pub target: Vec<Target>,
}

/// One `[[portal-group]]`: portals that initiators see as one target port.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PortalGroup {
    /// Its target portal group tag, which is the relative target port identifier too; 2 to 65535.
    pub tag: Spanned<u16>,
    /// Its portals: `ADDRESS:PORT`.
    pub listen: Vec<Spanned<String>>,
}

/// One `[[target.port-group]]`: portal groups with one asymmetric access state (ALUA).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PortGroup {
    /// The target port group, 1 to 65535.
    pub number: Spanned<u16>,
    /// Tags of its portal groups.
    pub portal_groups: Vec<Spanned<u16>>,
    /// State at the start: `active-optimized` (default), `active-non-optimized`, `standby`,
    /// `unavailable` or `transitioning`.
    pub state: Option<Spanned<String>>,
    /// Whether hosts do well to use it; default false.
    #[serde(default)]
    pub preferred: bool,
}

/// One `[[target]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Target {
    /// Its iSCSI name.
    pub name: Spanned<String>,
    /// A name for people.
    pub alias: Option<Spanned<String>>,
    /// Commands that an initiator may have outstanding, 1 to 1024; default 128.
    pub queue_depth: Option<Spanned<u16>>,
    /// Connections that a session may have, 1 to 32; default 4.
    pub max_connections: Option<Spanned<u16>>,
    /// Seconds that an initiator is asked to wait before it comes back after a failure; default 2.
    pub time2wait: Option<Spanned<u16>>,
    /// Seconds after that in which a session that lost its last connection can be continued: the
    /// most that is agreed to; default 20. At
    /// ErrorRecoveryLevel 2 also the time in which its commands can go on over another connection.
    pub time2retain: Option<Spanned<u16>>,
    /// Highest ErrorRecoveryLevel that is agreed to: 0, 1 or 2; default 2.
    pub error_recovery_level: Option<Spanned<u8>>,
    /// R2Ts of a command that may be agreed on, 1 to 65535; default 8.
    pub max_outstanding_r2t: Option<Spanned<u16>>,
    /// Whether the PDUs of a write's burst must come in order; default: as initiators like.
    pub data_pdu_in_order: Option<bool>,
    /// Whether bursts must come in order; default: as initiators like.
    pub data_sequence_in_order: Option<bool>,
    /// Whether the markers of RFC 3720 are agreed to; default false.
    pub markers: Option<bool>,
    /// Which resets of the whole target initiators may ask for: `none`, `warm` (all tasks end) or
    /// `cold` (all sessions end, too); default `warm`.
    pub target_reset: Option<Spanned<String>>,
    /// Where the target is now, `ADDRESS:PORT`: initiators are sent there, and no LUN is needed.
    pub redirect: Option<Spanned<String>>,
    /// Whether initiators are to remember `redirect`; default false.
    pub redirect_permanent: Option<bool>,
    /// Whether initiators are told version, system and processor of this daemon
    /// (X#NodeArchitecture); default false.
    pub node_architecture: Option<bool>,
    /// `any`, `required` or `off`.
    pub header_digest: Option<Spanned<String>>,
    /// `any`, `required` or `off`.
    pub data_digest: Option<Spanned<String>>,
    /// Ping an initiator that is silent for so long, for example `30s`; `0` never.
    pub ping_interval: Option<Spanned<String>>,
    /// Drop it if the ping is not answered in this time.
    pub ping_timeout: Option<Spanned<String>>,
    /// `off`, `optional`, `required` or `mutual`; default: `required` if there is a `chap-user`.
    pub authentication: Option<Spanned<String>>,
    /// The allowed hash functions, of which the initiator's order chooses; default: all.
    pub chap_algorithms: Option<Spanned<Vec<Spanned<String>>>>,
    /// Common to initiators that have none of their own: CHAP_N.
    pub chap_user: Option<Spanned<String>>,
    /// File that holds the secret of `chap-user`.
    pub chap_secret_file: Option<Spanned<String>>,
    /// Environment variable that holds it instead.
    pub chap_secret_env: Option<Spanned<String>>,
    /// CHAP_N by which the target proves itself to an initiator that asks for it.
    pub mutual_user: Option<Spanned<String>>,
    /// File that holds the secret of `mutual-user`.
    pub mutual_secret_file: Option<Spanned<String>>,
    /// Environment variable that holds it instead.
    pub mutual_secret_env: Option<Spanned<String>>,
    /// Target port groups; default: each portal group is one, always active and optimized.
    #[serde(default)]
    pub port_group: Vec<PortGroup>,
    /// Whether hosts may change the states of port groups too; default false: `lunwire alua` alone.
    #[serde(default)]
    pub explicit_alua: bool,
    /// The logical units.
    #[serde(default)]
    pub lun: Vec<Lun>,
    /// Who may log in; everybody if there is none.
    #[serde(default)]
    pub initiator: Vec<Initiator>,
}

/// One `[[target.lun]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Lun {
    /// Its number; default: its place in the list, from 0.
    pub number: Option<Spanned<u16>>,
    /// `kind:argument[,option=value]...`
    pub store: Spanned<String>,
    /// Filters in front of it, as options of a store are written; the last one meets a command
    /// first.
    #[serde(default)]
    pub filters: Vec<Spanned<String>>,
    /// Hosts are warned when less space than this is left for a thin disk, for example `10G`.
    pub space_warning: Option<Spanned<String>>,
    /// Logical block length, 512 or 4096; default 512.
    pub block: Option<Spanned<u32>>,
    /// T10 protection information of type 1, 2 or 3 beside each block: in `PATH.pi` for
    /// `file:PATH`, in memory for `memory:`. Default: none. It is the type of a new disk; a host
    /// can change it (FORMAT UNIT), and it stays so.
    pub protection: Option<Spanned<u8>>,
    /// Unit serial number; default: derived from target name and number.
    pub serial: Option<Spanned<String>>,
}

/// One `[[target.initiator]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Initiator {
    /// Its iSCSI name.
    pub name: Spanned<String>,
    /// The LUNs that it sees; all if absent.
    pub luns: Option<Vec<Spanned<u16>>>,
    /// Which resets of the whole target it may ask for; default: what the target says.
    pub target_reset: Option<Spanned<String>>,
    /// Its own CHAP_N.
    pub chap_user: Option<Spanned<String>>,
    /// File that holds the secret of `chap-user`.
    pub chap_secret_file: Option<Spanned<String>>,
    /// Environment variable that holds it instead.
    pub chap_secret_env: Option<Spanned<String>>,
    /// CHAP_N by which the target proves itself to an initiator that asks for it.
    pub mutual_user: Option<Spanned<String>>,
    /// File that holds the secret of `mutual-user`.
    pub mutual_secret_file: Option<Spanned<String>>,
    /// Environment variable that holds it instead.
    pub mutual_secret_env: Option<Spanned<String>>,
}

/// The `[discovery]` table.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Discovery {
    /// `off`, `optional`, `required` or `mutual`; default: `required` if there is a `chap-user`.
    pub authentication: Option<Spanned<String>>,
    /// The allowed hash functions, of which the initiator's order chooses; default: all.
    pub chap_algorithms: Option<Spanned<Vec<Spanned<String>>>>,
    /// Of everybody who may ask: CHAP_N.
    pub chap_user: Option<Spanned<String>>,
    /// File that holds the secret of `chap-user`.
    pub chap_secret_file: Option<Spanned<String>>,
    /// Environment variable that holds it instead.
    pub chap_secret_env: Option<Spanned<String>>,
    /// CHAP_N by which the target proves itself to an initiator that asks for it.
    pub mutual_user: Option<Spanned<String>>,
    /// File that holds the secret of `mutual-user`.
    pub mutual_secret_file: Option<Spanned<String>>,
    /// Environment variable that holds it instead.
    pub mutual_secret_env: Option<Spanned<String>>,
}

/// The fields by which both sides of CHAP prove themselves, wherever they stand. Secrets are never
/// among them.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // each is the field of that name
pub struct Chap<'a> {
    pub user: Option<&'a Spanned<String>>,
    pub secret_file: Option<&'a Spanned<String>>,
    pub secret_env: Option<&'a Spanned<String>>,
    pub mutual_user: Option<&'a Spanned<String>>,
    pub mutual_secret_file: Option<&'a Spanned<String>>,
    pub mutual_secret_env: Option<&'a Spanned<String>>,
}

macro_rules! chap_fields {
    ($($owner:ty)*) => {$(
        impl $owner {
            /// Its fields of CHAP.
            #[must_use]
            pub const fn chap(&self) -> Chap<'_> {
                Chap {
                    user: self.chap_user.as_ref(),
                    secret_file: self.chap_secret_file.as_ref(),
                    secret_env: self.chap_secret_env.as_ref(),
                    mutual_user: self.mutual_user.as_ref(),
                    mutual_secret_file: self.mutual_secret_file.as_ref(),
                    mutual_secret_env: self.mutual_secret_env.as_ref(),
                }
            }
        }
    )*};
}

chap_fields!(Target Initiator Discovery);

/// Where a configuration came from: its name and text, to say where an error is.
#[derive(Clone, Debug)]
pub struct Source {
    name: String,
    text: String,
}

/// What is wrong, where, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// File and line, or "command line".
    pub place: String,
    /// For example `target.lun.store`; empty if the file is no TOML.
    pub field: String,
    /// The value as written.
    pub value: String,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl Source {
    /// `name`: the file's path as the user gave it.
    #[must_use]
    pub const fn new(name: String, text: String) -> Self {
        Self { name, text }
    }

    /// Reads the text.
    ///
    /// # Errors
    /// Bad TOML, unknown fields, missing fields, wrong types.
    pub fn parse(&self) -> Result<Config, ConfigError> {
        toml::from_str(&self.text).map_err(|error| {
            let span = error.span().unwrap_or_default();
            let written = self.text.get(span.clone()).unwrap_or_default();
            let value = written.lines().next().unwrap_or_default().trim().to_owned();
            ConfigError {
                place: self.place(&span),
                field: String::new(),
                value,
                problem: problem(error.message()),
            }
        })
    }

    /// An error about `value`, which stands in `field`.
    pub fn error<T: fmt::Display>(
        &self,
        field: &str,
        value: &Spanned<T>,
        problem: impl fmt::Display,
    ) -> ConfigError {
        ConfigError {
            place: self.place(&value.span()),
            field: field.to_owned(),
            value: value.get_ref().to_string(),
            problem: problem.to_string(),
        }
    }

    /// `FILE:LINE`, the line counted from one.
    fn place(&self, span: &Range<usize>) -> String {
        let before = self.text.get(..span.start).unwrap_or(&self.text);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        format!("{}:{line}", self.name)
    }
}

/// Types as the message of the parser names them, and as a file has them.
const TYPES: [(&str, &str); 6] = [
    ("a sequence", "a list is right, such as [\"...\"]"),
    ("a boolean", "true or false is right"),
    ("a string", "a text in quotes is right"),
    ("a map", "a table is right"),
    ("struct", "a table is right"),
    ("usize", "a whole number is right"),
];

/// What the parser says, in the words of who writes the file.
fn problem(message: &str) -> String {
    if let Some((unknown, known)) = message.split_once(", expected ")
        && let Some(field) = unknown.strip_prefix("unknown field ")
    {
        let names = known.split('`').skip(1).step_by(2);
        return match words::nearest(field.trim_matches('`'), names) {
            Some(meant) => format!("{unknown}; did you mean `{meant}`?"),
            None => format!("{unknown}; no key has a name like it"),
        };
    }
    if let Some((given, expected)) = message.split_once(", expected ") {
        let is_number = |text: &str| matches!(text.as_bytes(), [b'u' | b'i', b'1'..=b'9', ..]);
        let right = match TYPES.iter().find(|(name, _)| expected.starts_with(name)) {
            Some((_, right)) => right,
            None if is_number(expected) => "a whole number is right",
            None => return message.to_owned(),
        };
        return format!("{given}; {right}");
    }
    message.to_owned()
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.field.is_empty() {
            write!(f, "{} = ", self.field)?;
        }
        if !self.value.is_empty() {
            write!(f, "\"{}\": ", self.value.escape_debug())?;
        }
        f.write_str(&self.problem)
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::new("lunwire.toml".into(), text.into())
    }

    #[test]
    fn a_whole_configuration_is_read() {
        let text = r#"
            listen = ["0.0.0.0:3260", "[::]:3260"]
            engine = "epoll"
            reactors = 2
            cpus = [0, 1]
            spin = "100us"
            login-timeout = "10s"
            log = "info"
            control-socket = "/run/lunwire.sock"
            state-dir = "/var/lib/lunwire"
            isns = "isns.example.com:3205"

            [[target]]
            name = "iqn.2026-01.com.example:disk"
            alias = "the disk"
            queue-depth = 64
            max-connections = 8
            time2wait = 1
            time2retain = 20
            error-recovery-level = 2
            max-outstanding-r2t = 65535
            data-pdu-in-order = true
            data-sequence-in-order = false
            markers = true
            target-reset = "cold"
            redirect = "192.0.2.7:3260"
            redirect-permanent = true
            header-digest = "any"
            data-digest = "off"
            ping-interval = "30s"
            ping-timeout = "10s"

            [[target.lun]]
            store = "memory:1G"
            block = 4096
            serial = "0001"

            [[target.initiator]]
            name = "iqn.2026-01.com.example:host"
            luns = [0]
            target-reset = "none"
            chap-user = "host"
            chap-secret-file = "/etc/lunwire/host"
            mutual-user = "disk"
            mutual-secret-env = "DISK_SECRET"

            [discovery]
            authentication = "mutual"
            chap-algorithms = ["sha256", "md5"]
        "#;
        let config = source(text).parse().unwrap();
        assert_eq!(config.listen.len(), 2);
        assert_eq!(config.isns.unwrap().get_ref(), "isns.example.com:3205");
        assert_eq!(config.target[0].markers, Some(true));
        assert_eq!(config.target[0].lun[0].store.get_ref(), "memory:1G");
        assert_eq!(config.target[0].initiator[0].luns.as_ref().unwrap().len(), 1);
        let chap = config.target[0].initiator[0].chap();
        assert_eq!(chap.user.unwrap().get_ref(), "host");
        assert_eq!(chap.secret_file.unwrap().get_ref(), "/etc/lunwire/host");
        assert_eq!(chap.mutual_secret_env.unwrap().get_ref(), "DISK_SECRET");
        assert!(chap.secret_env.is_none() && chap.mutual_secret_file.is_none());
        let discovery = config.discovery.unwrap();
        assert_eq!(discovery.chap_algorithms.unwrap().get_ref()[0].get_ref(), "sha256");
        assert!(discovery.chap_user.is_none());
    }

    #[test]
    fn errors_name_file_line_field_and_value() {
        let cases = [
            ("\nlisten = 5\n", "lunwire.toml:2", "invalid type"),
            ("reactor = 1\n", "lunwire.toml:1", "unknown field `reactor`"),
            ("\n\n[[target]]\n", "lunwire.toml:3", "missing field `name`"),
            ("engine = \"uring\"\nx", "lunwire.toml:2", "key with no value"),
            ("[[target]]\nname = \"a\"\nqueue-depth = 99999\n", "lunwire.toml:3", "99999"),
        ];
        for (text, place, problem) in cases {
            let error = source(text).parse().unwrap_err();
            assert_eq!(error.place, place, "{text}: {error}");
            assert!(error.to_string().contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn a_value_is_pointed_at() {
        let source = source("\n\nengine = \"fast\"\n");
        let config = source.parse().unwrap();
        let error =
            source.error("engine", &config.engine.unwrap(), "auto, uring or epoll is right");
        assert_eq!(
            error.to_string(),
            "lunwire.toml:3: engine = \"fast\": auto, uring or epoll is right"
        );
    }
}
