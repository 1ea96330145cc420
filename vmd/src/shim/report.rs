//! Tells vmd the state of the node's VMs: all of it on every change, again when vmd comes back.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use muster_types::api::Report;
use muster_types::ids::{JobId, Rank};
use muster_types::state::VmPhase;
use tokio::sync::watch;
use tracing::{debug, warn};

use super::board::Snapshot;
use super::launch::is_passing;
use crate::chain::chain;
use crate::wire::{Connection, WireError};

/// How long vmd may take to take a report.
const ANSWER: Duration = Duration::from_secs(10);

/// Time before the first repetition; doubled up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The longest time between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Sends reports until the last one is taken.
#[derive(Debug)]
pub struct Reporter {
    job: JobId,
    vmd_socket: PathBuf,
    state: watch::Receiver<Snapshot>,
    connection: Option<Connection>,
    /// VMs that vmd knows to have run.
    known_to_run: BTreeSet<Rank>,
}

impl Reporter {
    /// A reporter of what `state` holds.
    #[must_use]
    pub fn new(job: JobId, vmd_socket: PathBuf, state: watch::Receiver<Snapshot>) -> Self {
        Self {
            job,
            vmd_socket,
            state,
            connection: None,
            known_to_run: BTreeSet::new(),
        }
    }

    /// Reports until the last report is taken or the board is gone. Changes that come faster than vmd
    /// takes them go in one report.
    pub async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let state = self.state.borrow_and_update().clone();
            match self.deliver(&state).await {
                Ok(()) if state.last => return,
                Ok(()) => pause = FIRST_PAUSE,
                Err(e) => {
                    debug!(error = chain(&e), "report, trying again");
                    self.connection = None;
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    continue;
                }
            }
            let hung_up = async {
                match &self.connection {
                    Some(connection) => connection.hung_up().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = self.state.changed() => if changed.is_err() { return },
                // vmd was restarted: it is told everything again.
                () = hung_up => self.connection = None,
            }
        }
    }

    /// Sends the state; an answer that will be the same next time counts as taken.
    async fn deliver(&mut self, state: &Snapshot) -> Result<(), WireError> {
        for report in reports(self.job, state, &self.known_to_run) {
            let connection = match &mut self.connection {
                Some(connection) => connection,
                none => none.insert(Connection::connect(&self.vmd_socket).await?),
            };
            let answer = tokio::time::timeout(ANSWER, connection.call(&report)).await;
            match answer {
                Ok(Ok(_)) => {}
                Ok(Err(WireError::Api(e))) if !is_passing(&e) => {
                    warn!(error = %e, "vmd does not take the report");
                }
                Ok(Err(e)) => return Err(e),
                Err(_) => {
                    return Err(WireError::Io {
                        peer: self.vmd_socket.display().to_string(),
                        source: std::io::ErrorKind::TimedOut.into(),
                    });
                }
            }
        }
        self.known_to_run.extend(&state.ran);
        Ok(())
    }
}

/// The reports that tell a state. A VM that has run and ended since the last one is first told to
/// run: whoever waits for the start must see it.
fn reports(job: JobId, state: &Snapshot, known_to_run: &BTreeSet<Rank>) -> Vec<Report> {
    let now = Report {
        job,
        vms: state.vms.clone(),
        timeline: state.timeline.clone(),
        last: state.last,
    };
    let mut before = Report {
        last: false,
        ..now.clone()
    };
    let mut missed = false;
    for vm in &mut before.vms {
        let untold = state.ran.contains(&vm.rank) && !known_to_run.contains(&vm.rank);
        if untold && vm.phase.is_over() {
            vm.phase = VmPhase::Running;
            vm.reason = None;
            missed = true;
        }
    }
    if missed { vec![before, now] } else { vec![now] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shim::board::{Board, tests::vms};
    use crate::wire;
    use muster_types::api::Empty;
    use muster_types::varlink::Call;
    use tokio::net::UnixListener;

    async fn next(listener: &UnixListener) -> Connection {
        let (stream, _) = listener.accept().await.unwrap();
        Connection::accepted(stream, "shim".into())
    }

    async fn take(connection: &mut Connection) -> Report {
        let call: Call = connection.receive().await.unwrap().unwrap();
        connection
            .send(&wire::success(&Empty {}).unwrap())
            .await
            .unwrap();
        serde_json::from_value(call.parameters).unwrap()
    }

    #[tokio::test]
    async fn a_new_vmd_is_told_everything() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vmd.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let board = Board::new(&vms(2));
        let reporter = Reporter::new(JobId(5), path.clone(), board.subscribe());
        let task = tokio::spawn(reporter.run());

        let mut first = next(&listener).await;
        assert_eq!(take(&mut first).await.vms[0].phase, VmPhase::Pending);
        board.update(Rank(0), |vm| vm.phase = VmPhase::Running);
        assert_eq!(take(&mut first).await.vms[0].phase, VmPhase::Running);

        // vmd dies, comes back, and nothing has changed meanwhile.
        drop((first, listener));
        std::fs::remove_file(&path).unwrap();
        tokio::time::sleep(Duration::from_millis(70)).await;
        let listener = UnixListener::bind(&path).unwrap();
        let mut second = next(&listener).await;
        assert_eq!(take(&mut second).await.vms[0].phase, VmPhase::Running);

        board.close();
        let last = take(&mut second).await;
        assert!(last.last);
        task.await.unwrap();
    }

    #[tokio::test]
    async fn a_refusal_is_not_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vmd.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let board = Board::new(&vms(1));
        board.close();
        let task = tokio::spawn(Reporter::new(JobId(5), path, board.subscribe()).run());
        let mut connection = next(&listener).await;
        connection.receive::<Call>().await.unwrap();
        let no = wire::failure("io.muster.Vmd", "NoSuchCluster", "gone");
        connection.send(&no).await.unwrap();
        task.await.unwrap();
    }

    #[test]
    fn a_short_life_is_told_in_two_reports() {
        let board = Board::new(&vms(1));
        board.update(Rank(0), |vm| vm.phase = VmPhase::Running);
        board.update(Rank(0), |vm| {
            vm.phase = VmPhase::Stopped;
            vm.reason = Some("powered off".into());
        });
        board.close();
        let state = board.subscribe().borrow().clone();
        let told = reports(JobId(5), &state, &BTreeSet::new());
        let phases: Vec<_> = told.iter().map(|r| (r.vms[0].phase, r.last)).collect();
        assert_eq!(
            phases,
            [(VmPhase::Running, false), (VmPhase::Stopped, true)]
        );
        assert_eq!(
            reports(JobId(5), &state, &BTreeSet::from([Rank(0)])).len(),
            1
        );
    }
}
