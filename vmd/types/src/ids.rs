//! Ids and units: newtypes that cannot be mixed up, each valid once it exists.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Slurm's job id (`SLURM_JOB_ID`); an array task and a het component each have their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub u32);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl FromStr for JobId {
    type Err = IdError;
    fn from_str(s: &str) -> Result<Self, IdError> {
        match s.parse::<u32>() {
            Ok(n) if n > 0 => Ok(Self(n)),
            _ => Err(IdError::Job(shown(s))),
        }
    }
}

/// One run of a job: a requeued job keeps its id and counts its restarts
/// (`SLURM_JOB_RESTART_COUNT`), so state is keyed by both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct JobKey {
    /// The job.
    pub job: JobId,
    /// How often Slurm has restarted it; 0 for the first run.
    pub restart: u32,
}

impl fmt::Display for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.job, self.restart)
    }
}

impl FromStr for JobKey {
    type Err = IdError;
    fn from_str(s: &str) -> Result<Self, IdError> {
        let bad = || IdError::JobKey(shown(s));
        let (job, restart) = s.split_once('.').ok_or_else(bad)?;
        Ok(Self {
            job: job.parse().map_err(|_| bad())?,
            restart: restart.parse().map_err(|_| bad())?,
        })
    }
}

/// Index of a VM in its virtual cluster, from 0; `vm3` is the name of rank 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rank(pub u32);

impl Rank {
    /// The VM's name: `vm<rank>`.
    #[must_use]
    pub fn name(self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vm{}", self.0)
    }
}

impl FromStr for Rank {
    type Err = IdError;
    /// Accepts `vm3` and `3`.
    fn from_str(s: &str) -> Result<Self, IdError> {
        let digits = s.strip_prefix("vm").unwrap_or(s);
        match digits.parse::<u32>() {
            Ok(n) if n < MAX_VMS => Ok(Self(n)),
            _ => Err(IdError::Rank(shown(s))),
        }
    }
}

/// The most VMs one virtual cluster may have.
pub const MAX_VMS: u32 = 4096;

/// Name of a Slurm compute node (`NodeName`): 1 to 64 of `[A-Za-z0-9._-]`, no leading dot or dash,
/// so that it is safe in a key, a path and an argument.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct NodeName(String);

impl NodeName {
    /// Checks and wraps a name.
    ///
    /// # Errors
    /// The name is empty, too long, or has a character outside `[A-Za-z0-9._-]`.
    pub fn new(s: &str) -> Result<Self, IdError> {
        let ok = (1..=64).contains(&s.len())
            && !s.starts_with(['.', '-'])
            && s.bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        if ok {
            Ok(Self(s.to_owned()))
        } else {
            Err(IdError::Node(shown(s)))
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for NodeName {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let s = String::deserialize(d)?;
        Self::new(&s).map_err(serde::de::Error::custom)
    }
}

/// An amount of memory in MiB (2^20 bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Mib(pub u64);

impl fmt::Display for Mib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} MiB", self.0)
    }
}

impl FromStr for Mib {
    type Err = IdError;
    /// A number with a binary unit: `512M`, `4G`, `1T`; a trailing `iB` or `B` is allowed, and a
    /// bare number counts MiB. At least 1 MiB, at most 1 PiB.
    fn from_str(s: &str) -> Result<Self, IdError> {
        let bad = || IdError::Memory(shown(s));
        let t = s.trim();
        let t = t
            .strip_suffix("iB")
            .or_else(|| t.strip_suffix('B'))
            .unwrap_or(t);
        let (digits, factor) = match t.as_bytes().last() {
            Some(b'M' | b'm') => (&t[..t.len() - 1], 1),
            Some(b'G' | b'g') => (&t[..t.len() - 1], 1024),
            Some(b'T' | b't') => (&t[..t.len() - 1], 1024 * 1024),
            _ => (t, 1),
        };
        let n: u64 = digits.trim_end().parse().map_err(|_| bad())?;
        let mib = n.checked_mul(factor).ok_or_else(bad)?;
        if (1..=1 << 30).contains(&mib) {
            Ok(Self(mib))
        } else {
            Err(bad())
        }
    }
}

/// A value that is none of the kind its place asks for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Not a job id.
    #[error("'{0}' is no job id: a number from 1 on")]
    Job(String),
    /// Not a job id with a restart count.
    #[error("'{0}' is no '<job>.<restart>'")]
    JobKey(String),
    /// Not a VM.
    #[error("'{0}' is no VM: give vm<rank>, from vm0 to vm4095")]
    Rank(String),
    /// Not a node name.
    #[error("'{0}' is no node name: 1 to 64 of A-Z a-z 0-9 . _ -, not starting with . or -")]
    Node(String),
    /// Not an amount of memory.
    #[error(
        "'{0}' is no amount of memory: a number with M, G or T (binary units), such as 512M or 4G"
    )]
    Memory(String),
}

/// Untrusted text cut to a length that fits a message, control characters escaped.
#[must_use]
pub fn shown(s: &str) -> String {
    const MOST: usize = 80;
    let mut out: String = s
        .chars()
        .take(MOST)
        .flat_map(|c| {
            if c.is_control() {
                c.escape_default().collect::<Vec<_>>()
            } else {
                vec![c]
            }
        })
        .collect();
    if s.chars().nth(MOST).is_some() {
        out.push_str("...");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_units_are_binary() {
        assert_eq!("512M".parse::<Mib>().unwrap(), Mib(512));
        assert_eq!("4G".parse::<Mib>().unwrap(), Mib(4096));
        assert_eq!("4GiB".parse::<Mib>().unwrap(), Mib(4096));
        assert_eq!("2 G".parse::<Mib>().unwrap(), Mib(2048));
        assert_eq!("300".parse::<Mib>().unwrap(), Mib(300));
        for bad in [
            "",
            "0",
            "G",
            "4K",
            "-1G",
            "1.5G",
            "99999999999999999999G",
            "2048T",
        ] {
            assert!(bad.parse::<Mib>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ranks_have_two_spellings() {
        assert_eq!("vm3".parse::<Rank>().unwrap(), Rank(3));
        assert_eq!("3".parse::<Rank>().unwrap().name(), "vm3");
        for bad in ["", "vm", "vm-1", "4096", "vm3x"] {
            assert!(bad.parse::<Rank>().is_err(), "{bad}");
        }
    }

    #[test]
    fn job_keys_round_trip() {
        let key = JobKey {
            job: JobId(7),
            restart: 2,
        };
        assert_eq!(key.to_string().parse::<JobKey>().unwrap(), key);
        for bad in ["7", "7.", ".1", "0.0", "7.1.2", "a.b"] {
            assert!(bad.parse::<JobKey>().is_err(), "{bad}");
        }
    }

    #[test]
    fn node_names_are_safe_in_paths() {
        assert!(NodeName::new("n-1.site").is_ok());
        for bad in ["", "..", "-n1", "a/b", "a b", "a\n", &"n".repeat(65)] {
            assert!(NodeName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn untrusted_text_is_cut_and_escaped() {
        assert_eq!(shown("a\nb"), "a\\nb");
        assert_eq!(shown(&"x".repeat(100)), format!("{}...", "x".repeat(80)));
    }
}
