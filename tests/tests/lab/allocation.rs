//! An interactive allocation with VMs, driven by its shell.

use std::time::Duration;

use muster_tests::lab::{Background, Lab, User};
use muster_tests::wait::{Look, wait_for};

/// How long anything in the lab may take; guests are emulated on two cores.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// `-N<nodes of the lab> -n2`: two tasks over all nodes.
pub(crate) fn all_nodes(lab: &Lab) -> Vec<String> {
    let nodes = lab.options().node_names().len();
    vec![format!("-N{nodes}"), "-n2".into()]
}

/// A shell of alice's in an allocation with VMs.
pub(crate) struct Allocation {
    pub(crate) shell: Background,
    pub(crate) job: String,
    commands: u32,
}

impl Allocation {
    /// `salloc -N<all> -n2 --vm=<definition> bash`, waited for until the VMs run.
    pub(crate) fn start(lab: &Lab, definition: &str) -> Self {
        let mut allocation = Self::begin(lab, definition);
        let waited = allocation.sh("muster wait --for running --timeout 60");
        assert!(waited.contains("running"), "{waited}");
        allocation
    }

    /// The same, not waited for.
    pub(crate) fn begin(lab: &Lab, definition: &str) -> Self {
        let mut argv = vec!["salloc".to_owned()];
        argv.extend(all_nodes(lab));
        argv.push(format!("--vm={definition}"));
        argv.push("bash".into());
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        let shell = lab.start("ctl", User::Alice, &argv).unwrap();
        let mut allocation = Self {
            shell,
            job: String::new(),
            commands: 0,
        };
        allocation.job = allocation.sh("echo $SLURM_JOB_ID").trim().to_owned();
        assert!(!allocation.job.is_empty(), "{}", allocation.shell.stderr());
        allocation
    }

    /// Runs a command in the shell and returns what it printed on both streams.
    pub(crate) fn sh(&mut self, command: &str) -> String {
        self.commands += 1;
        let (begin, end) = (
            format!("<begin {}>", self.commands),
            format!("<end {}>", self.commands),
        );
        let line = format!(
            "echo '{begin}'; {{ {command}; }} 2>&1 </dev/null; echo \"<end\" {}'>'\n",
            self.commands
        );
        self.shell.write(&line).unwrap();
        self.shell.expect(&end, LONG).unwrap();
        let all = self.shell.stdout();
        let from = all.find(&begin).unwrap() + begin.len();
        let to = all[from..].find(&end).unwrap() + from;
        all[from..to].trim_matches('\n').to_owned()
    }

    /// Ends the shell, and with it the job.
    pub(crate) fn end(self) {
        let output = self.shell.wait(LONG).unwrap();
        assert!(
            output.stderr.contains("Relinquishing job allocation"),
            "{output}"
        );
    }

    /// Waits until `muster ps` shows a text in the job's line.
    pub(crate) fn until_ps_shows(&self, lab: &Lab, text: &str) {
        let script = format!("muster ps | grep -w '^{}'", self.job);
        wait_for(&format!("'{text}' in muster ps"), LONG, || {
            let output = lab.sh("ctl", User::Alice, &script, LONG)?;
            Ok(if output.stdout.contains(text) {
                Look::Ready(())
            } else {
                Look::NotYet(output.to_string())
            })
        })
        .unwrap();
    }
}

/// Pids of the QEMUs of a job on a node.
pub(crate) fn qemus(lab: &Lab, node: &str, job: &str) -> Vec<String> {
    // Where a job's scratch directory is named, so is the job.
    let script = format!("pgrep -f '^qemu-system.*scratch/{job}[.]' || true");
    let pids = lab.root(node, &script).unwrap();
    pids.lines().map(str::to_owned).collect()
}

/// All of the job's QEMUs, with their nodes.
pub(crate) fn all_qemus(lab: &Lab, job: &str) -> Vec<(String, String)> {
    let nodes = lab.options().node_names();
    let on = |node: &String| {
        let pids = qemus(lab, node, job);
        pids.into_iter()
            .map(|pid| (node.clone(), pid))
            .collect::<Vec<_>>()
    };
    nodes.iter().flat_map(on).collect()
}
