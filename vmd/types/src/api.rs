//! `io.muster.Vmd`: the interface of `/run/muster/vmd.sock`.
//!
//! Who may call is decided by vmd from the peer's credentials (`SO_PEERCRED`, unix(7)), never from a
//! message. [`IDL`] is the interface's description for `varlinkctl introspect`.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::ids::{JobId, JobKey, NodeName, Rank};
use crate::request::TemplateSpec;
use crate::state::{ClusterView, VmStatus};
use crate::words::words;

/// Where vmd listens, unless `MUSTER_VMD_SOCKET` says otherwise.
pub const SOCKET: &str = "/run/muster/vmd.sock";

/// The interface in varlink's own language.
pub const IDL: &str = include_str!("io.muster.Vmd.varlink");

/// Name of the interface.
pub const INTERFACE: &str = "io.muster.Vmd";

/// A method: its parameters, its name on the wire, and the type of its reply.
pub trait Method: Serialize + DeserializeOwned {
    /// Qualified name.
    const NAME: &'static str;
    /// What comes back.
    type Reply: Serialize + DeserializeOwned;
}

macro_rules! method {
    ($params:ty, $name:literal, $reply:ty) => {
        impl Method for $params {
            const NAME: &'static str = $name;
            type Reply = $reply;
        }
    };
}
pub(crate) use method;

/// A reply without content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Empty {}

/// Root only: a job with VMs starts on this node (`slurm_spank_job_prolog`). Answered as soon as the
/// job is journalled; a bad request becomes the job's verdict, not an error of this call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegisterJob {
    /// What Slurm says of the job.
    pub facts: JobFacts,
    /// The cluster request as it stood in the job's control environment: the user's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}
method!(RegisterJob, "io.muster.Vmd.RegisterJob", Empty);

/// Facts about a job, taken from the prolog's environment, which slurmd builds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobFacts {
    /// `SLURM_JOB_ID` and `SLURM_JOB_RESTART_COUNT`.
    pub key: JobKey,
    /// `SLURM_JOB_UID`.
    pub uid: u32,
    /// `SLURM_JOB_GID`.
    pub gid: u32,
    /// `SLURM_JOB_USER`.
    pub user: String,
    /// `SLURMD_NODENAME`: this node.
    pub node: NodeName,
    /// `SLURM_JOB_NODELIST`, or `SLURM_NODELIST` before Slurm 23: Slurm's notation.
    pub nodelist: String,
    /// `SLURM_JOB_CPUS_PER_NODE`: Slurm's notation.
    pub cpus_per_node: String,
    /// `SLURM_JOB_PARTITION`.
    pub partition: String,
    /// `SLURM_JOB_ACCOUNT`; none: the job has no account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// `SLURM_JOB_SLUID` (Slurm 25.11 and later): the id in the job's cgroup names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sluid: Option<String>,
}

/// Root only: the job is over on this node (`slurm_spank_job_epilog`). Answered when the node is
/// clean. Also right for a job that vmd does not know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseJob {
    /// The run of the job.
    pub key: JobKey,
}
method!(ReleaseJob, "io.muster.Vmd.ReleaseJob", Released);

/// What a release could not undo; empty when the node is clean.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Released {
    /// One line each.
    pub problems: Vec<String>,
}

/// The job's user, from inside the job's cgroup (the shim): wait until the node is prepared, then
/// take the plan for its VMs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    /// The job.
    pub job: JobId,
    /// The VM step's id (`SLURM_STEP_ID`), with which the step can be cancelled.
    pub step: u32,
}
method!(Launch, "io.muster.Vmd.Launch", LaunchPlan);

/// What a shim needs to run its node's VMs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchPlan {
    /// The run of the job.
    pub key: JobKey,
    /// This node.
    pub node: NodeName,
    /// Directory for overlays and logs: made by vmd, the user's, mode 0700, removed by vmd.
    pub scratch_dir: String,
    /// Directory for sockets: made by vmd, the user's, mode 0700, removed by vmd.
    pub run_dir: String,
    /// The VMs of this node; may be empty.
    pub vms: Vec<VmPlan>,
    /// What QEMU needs beside guest RAM, per VM, in MiB.
    pub memory_overhead_mib: u64,
    /// The same as a share of guest RAM, in thousandths.
    pub memory_overhead_permille: u64,
    /// How long a VM may take to power down before it is ended, in milliseconds.
    pub stop_timeout_ms: u64,
}

/// One VM of a [`LaunchPlan`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmPlan {
    /// Which VM.
    pub rank: Rank,
    /// Name of its template.
    pub template: String,
    /// Its template.
    pub spec: TemplateSpec,
    /// Its vCPUs, 1 or more.
    pub vcpus: u32,
}

/// The job's user, from inside the job's cgroup (the shim): the state of all VMs of this node. Always
/// all of them, so that a report can be repeated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// The job.
    pub job: JobId,
    /// All VMs of the node.
    pub vms: Vec<VmStatus>,
    /// Events of the start so far: name to microseconds since the Unix epoch.
    #[serde(default)]
    pub timeline: std::collections::BTreeMap<String, u64>,
    /// The shim ends after this report.
    #[serde(default)]
    pub last: bool,
}
method!(Report, "io.muster.Vmd.Report", Empty);

/// The owner or root: wait until the cluster is in the wanted state, or cannot reach it any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitCluster {
    /// The job.
    pub job: JobId,
    /// What to wait for.
    pub until: Until,
    /// How long, in milliseconds; at most a day.
    pub timeout_ms: u64,
}
method!(WaitCluster, "io.muster.Vmd.WaitCluster", Waited);

/// What a wait is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Until {
    /// Every VM's guest has run, whatever became of it since: what a job's own steps wait for.
    Started,
    /// Every VM runs.
    Running,
    /// Every VM counts as ready by its template; at present the same as running.
    Ready,
    /// No VM is left.
    Stopped,
}

words! {
    /// Until when the tasks of a job wait before they start (`--vm-wait`).
    #[derive(Default)]
    Wait {
        /// All VMs are ready.
        #[default]
        Ready = "ready",
        /// All guests' CPUs run.
        Running = "running",
        /// They do not wait.
        No = "no",
    }
}

/// How a wait ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waited {
    /// How.
    pub outcome: WaitOutcome,
    /// Why not, or what is still waited for: names the node or VM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the user should know although it worked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The three ends of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitOutcome {
    /// It is as wanted.
    Reached,
    /// It cannot be reached any more.
    Failed,
    /// Time is up.
    TimedOut,
}

/// Anyone: the caller's clusters; root and configured operators see all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListClusters {
    /// Only those of this uid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
}
method!(ListClusters, "io.muster.Vmd.ListClusters", Clusters);

/// Reply of [`ListClusters`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Clusters {
    /// By job id.
    pub clusters: Vec<ClusterView>,
}

/// The owner or root: one cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetCluster {
    /// The job.
    pub job: JobId,
}
method!(GetCluster, "io.muster.Vmd.GetCluster", Cluster);

/// Reply of [`GetCluster`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// The cluster.
    pub cluster: ClusterView,
}

/// Anyone: what this vmd is and whether its state store answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetStatus {}
method!(GetStatus, "io.muster.Vmd.GetStatus", VmdStatus);

/// Reply of [`GetStatus`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmdStatus {
    /// Release of the program.
    pub version: String,
    /// Whether it only answers for a login node.
    pub gateway: bool,
    /// `etcd` or `embedded`.
    pub store: String,
    /// Why the state store does not answer; none when it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_error: Option<String>,
    /// Jobs that this node has registered.
    pub jobs: u32,
}

/// Errors of the interface, the name on the wire without the interface, each with a `message` that is
/// fit to be shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// The peer may not do this.
    #[error("{0}")]
    PermissionDenied(String),
    /// No cluster of that job that the caller may see: a stranger's looks like none.
    #[error("{0}")]
    NoSuchCluster(String),
    /// The job failed before it could launch; the message is the reason.
    #[error("{0}")]
    ClusterFailed(String),
    /// The state store does not answer.
    #[error("{0}")]
    StoreUnavailable(String),
    /// Too many calls at once of one user, or in all.
    #[error("{0}")]
    Busy(String),
    /// The parameters do not parse or make no sense.
    #[error("{0}")]
    InvalidCall(String),
    /// Anything else.
    #[error("{0}")]
    Internal(String),
}

impl ApiError {
    /// Name on the wire, without the interface.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::PermissionDenied(_) => "PermissionDenied",
            Self::NoSuchCluster(_) => "NoSuchCluster",
            Self::ClusterFailed(_) => "ClusterFailed",
            Self::StoreUnavailable(_) => "StoreUnavailable",
            Self::Busy(_) => "Busy",
            Self::InvalidCall(_) => "InvalidCall",
            Self::Internal(_) => "Internal",
        }
    }

    /// The error for a name from the wire (with its interface) and its message.
    #[must_use]
    pub fn from_wire(name: &str, message: String) -> Self {
        match name.rsplit('.').next().unwrap_or(name) {
            "PermissionDenied" => Self::PermissionDenied(message),
            "NoSuchCluster" => Self::NoSuchCluster(message),
            "ClusterFailed" => Self::ClusterFailed(message),
            "StoreUnavailable" => Self::StoreUnavailable(message),
            "Busy" => Self::Busy(message),
            "InvalidCall" | "InvalidParameter" => Self::InvalidCall(message),
            _ => Self::Internal(if message.is_empty() {
                name.to_owned()
            } else {
                message
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_names_every_method_and_error() {
        let methods = [
            RegisterJob::NAME,
            ReleaseJob::NAME,
            Launch::NAME,
            Report::NAME,
            WaitCluster::NAME,
            ListClusters::NAME,
            GetCluster::NAME,
            GetStatus::NAME,
        ];
        for name in methods {
            let short = name.strip_prefix("io.muster.Vmd.").unwrap();
            assert!(IDL.contains(&format!("\nmethod {short}(")), "{short}");
        }
        assert_eq!(IDL.matches("\nmethod ").count(), methods.len());
        for error in [
            "PermissionDenied",
            "NoSuchCluster",
            "ClusterFailed",
            "StoreUnavailable",
            "Busy",
            "InvalidCall",
            "Internal",
        ] {
            assert!(IDL.contains(&format!("\nerror {error} (")), "{error}");
            let e = ApiError::from_wire(&format!("{INTERFACE}.{error}"), "m".into());
            assert_eq!((e.name(), e.to_string().as_str()), (error, "m"));
        }
    }
}
