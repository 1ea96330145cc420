//! A shim, a scripted vmd, and a user at the control socket.

use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use muster_types::api::{Empty, Launch, LaunchPlan, Method, Report, VmPlan};
use muster_types::client::Client;
use muster_types::ids::{JobId, JobKey, Mib, NodeName, Rank};
use muster_types::image::ImageRef;
use muster_types::request::{Accel, TemplateSpec};
use muster_types::state::{VmPhase, VmStatus};
use muster_types::varlink::Call;
use muster_vmd::wire::{self, Connection};
use tokio::net::UnixListener;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long anything may take on a slow machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// Whether QEMU is here; says so if a test is skipped.
pub(crate) fn has_qemu(test: &str) -> bool {
    let version = std::process::Command::new("qemu-system-x86_64")
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    let here = version.is_ok_and(|s| s.success());
    let required = std::env::var("MUSTER_REQUIRE").unwrap_or_default();
    assert!(
        here || !required.split(',').any(|r| r == "qemu"),
        "qemu-system-x86_64 is required and missing"
    );
    if !here {
        println!("{test}: skipped, there is no qemu-system-x86_64");
    }
    here
}

/// A VM of the test's guest.
pub(crate) fn vm(rank: u32, image: &Path) -> VmPlan {
    VmPlan {
        rank: Rank(rank),
        template: "t".into(),
        spec: TemplateSpec {
            image: Some(ImageRef::File {
                path: image.display().to_string(),
            }),
            accel: Accel::Tcg,
            memory: Some(Mib(32)),
            ..TemplateSpec::default()
        },
        vcpus: 1,
    }
}

pub(crate) struct Bench {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) shim: Child,
    reports: watch::Receiver<Option<Report>>,
    tell: watch::Sender<Option<Report>>,
    plan: LaunchPlan,
    vmd: JoinHandle<()>,
}

impl Bench {
    /// Starts a shim for these VMs; `path` comes before the rest of `PATH`.
    pub(crate) fn start(make: impl FnOnce(&Path) -> Vec<VmPlan>, path: Option<&Path>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["scratch", "run"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let text = |name: &str| dir.path().join(name).display().to_string();
        let plan = LaunchPlan {
            key: JobKey {
                job: JobId(12),
                restart: 0,
            },
            node: NodeName::new("node1").unwrap(),
            scratch_dir: text("scratch"),
            run_dir: text("run"),
            vms: make(dir.path()),
            memory_overhead_mib: 192,
            memory_overhead_permille: 15,
            stop_timeout_ms: 30_000,
        };
        let (tell, reports) = watch::channel(None);
        let vmd = serve(&dir.path().join("vmd.sock"), plan.clone(), tell.clone());
        let mut command = Command::new(env!("CARGO_BIN_EXE_vmd-shim"));
        if let Some(path) = path {
            let rest = std::env::var("PATH").unwrap();
            command.env("PATH", format!("{}:{rest}", path.display()));
        }
        let shim = command
            .env("SLURM_JOB_ID", "12")
            .env("SLURM_STEP_ID", "0")
            .env("MUSTER_VMD_SOCKET", dir.path().join("vmd.sock"))
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self {
            dir,
            shim,
            reports,
            tell,
            plan,
            vmd,
        }
    }

    /// Ends the vmd; the shim's connections to it break.
    pub(crate) async fn stop_vmd(&mut self) {
        self.vmd.abort();
        drop((&mut self.vmd).await);
        std::fs::remove_file(self.dir.path().join("vmd.sock")).unwrap();
        self.tell.send_replace(None);
    }

    pub(crate) fn start_vmd(&mut self) {
        let socket = self.dir.path().join("vmd.sock");
        self.vmd = serve(&socket, self.plan.clone(), self.tell.clone());
    }

    /// Waits for a report like this.
    pub(crate) async fn report(&mut self, wanted: impl Fn(&Report) -> bool) -> Report {
        let fits = |r: &Option<Report>| r.as_ref().is_some_and(&wanted);
        let mut reports = self.reports.clone();
        let found = timeout(SOON, reports.wait_for(fits)).await;
        match found {
            Ok(report) => report.unwrap().clone().unwrap(),
            Err(_) => panic!("no such report, the last is {:#?}", *self.reports.borrow()),
        }
    }

    /// Waits until a VM is in a phase.
    pub(crate) async fn phase(&mut self, rank: u32, phase: VmPhase) -> VmStatus {
        let find = |r: &Report| r.vms.iter().find(|v| v.rank == Rank(rank)).cloned();
        let in_phase = |r: &Report| find(r).is_some_and(|v| v.phase == phase);
        find(&self.report(in_phase).await).unwrap()
    }

    /// Does something as the user, on a thread of its own.
    pub(crate) async fn user<T: Send + 'static>(
        &self,
        act: impl FnOnce(Client<StdUnixStream>) -> T + Send + 'static,
    ) -> T {
        let socket: PathBuf = self.dir.path().join("run/ctl.sock");
        let task = tokio::task::spawn_blocking(move || {
            let stream = StdUnixStream::connect(socket).unwrap();
            stream.set_read_timeout(Some(SOON)).unwrap();
            act(Client::new(stream))
        });
        task.await.unwrap()
    }

    pub(crate) fn signal(pid: u32, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
    }

    /// Waits for the shim's end.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        timeout(SOON, self.shim.wait()).await.unwrap().unwrap()
    }
}

/// Waits until a process is gone.
pub(crate) async fn gone(pid: u32) {
    let stat = PathBuf::from(format!("/proc/{pid}/stat"));
    let wait = async {
        // A zombie whose parent has not looked yet counts as gone.
        while std::fs::read_to_string(&stat).is_ok_and(|s| !s.contains(") Z ")) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, wait).await.unwrap();
}

/// A vmd that gives out a plan and takes reports. All of it ends with its task.
fn serve(socket: &Path, plan: LaunchPlan, tell: watch::Sender<Option<Report>>) -> JoinHandle<()> {
    let listener = UnixListener::bind(socket).unwrap();
    tokio::spawn(async move {
        let mut talks = tokio::task::JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (plan, tell) = (plan.clone(), tell.clone());
            talks.spawn(async move {
                let mut connection = Connection::accepted(stream, "shim".into());
                while let Ok(Some(call)) = connection.receive::<Call>().await {
                    let reply = if call.method == Launch::NAME {
                        wire::success(&plan)
                    } else {
                        tell.send_replace(Some(serde_json::from_value(call.parameters).unwrap()));
                        wire::success(&Empty {})
                    };
                    connection.send(&reply.unwrap()).await.unwrap();
                }
            });
        }
    })
}
