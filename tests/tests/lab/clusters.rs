//! Virtual clusters as users start, watch, use and end them.

use muster_tests::lab::User;
use muster_tests::wait::{Look, wait_for};

use crate::allocation::{Allocation, LONG, all_nodes, all_qemus};
use crate::in_lab;

#[test]
fn salloc_gives_a_shell_beside_running_vms() {
    in_lab(|lab| {
        let mut job = Allocation::start(lab, "tiny:2");
        let nodes = lab.options().node_names();
        let last = nodes.last().unwrap();
        let told = format!("muster: tiny:2 runs: vm0 on node1, vm1 on {last}");
        job.shell.expect(&told, LONG).unwrap();
        let ps = job.sh("muster ps");
        assert!(
            ps.contains("tiny:2") && ps.contains("2/2") && ps.contains("running"),
            "{ps}"
        );
        let steps = job.sh("squeue --steps --noheader --format='%i %j %u'");
        assert!(steps.contains(" vm alice"), "{steps}");
        let show = job.sh("muster show");
        assert!(show.contains(&format!("vm1 on {last}: running")), "{show}");
        assert!(show.contains("template tiny, image lab:tiny@"), "{show}");
        let step = job.sh("srun -n2 hostname");
        assert_eq!(
            step.lines().filter(|l| l.starts_with("node")).count(),
            2,
            "{step}"
        );
        job.end();
    });
}

#[test]
fn qemu_runs_as_the_user_inside_the_jobs_limits() {
    in_lab(|lab| {
        let mut job = Allocation::start(lab, "tiny:2");
        let qemus = all_qemus(lab, &job.job);
        assert_eq!(qemus.len(), 2, "{qemus:?}");
        for (node, pid) in qemus {
            let script = format!(
                "stat -c %U /proc/{pid}; cat /proc/{pid}/cgroup; grep Cpus_allowed_list /proc/{pid}/status"
            );
            let facts = lab.root(&node, &script).unwrap();
            assert_eq!(facts.lines().next(), Some("alice"), "{facts}");
            let shim = lab
                .root(
                    &node,
                    &format!("cat /proc/$(ps -o ppid= -p {pid} | tr -d ' ')/cgroup"),
                )
                .unwrap();
            for line in shim.lines() {
                assert!(
                    facts.contains(line),
                    "QEMU is elsewhere than its shim: {line}\n{facts}"
                );
            }
            assert!(
                facts.contains("/step_"),
                "not in the step's cgroup: {facts}"
            );
            let limit = lab.root(&node, &memory_limit_of(&pid)).unwrap();
            let limit: u64 = limit.trim().parse().unwrap();
            assert!(limit <= 1100 << 20, "memory is limited to {limit} bytes");
            let list = facts
                .lines()
                .find_map(|l| l.strip_prefix("Cpus_allowed_list:"));
            let allowed = count(list.unwrap().trim());
            // Two tasks of one CPU each over all nodes.
            let most = 2 / lab.options().node_names().len();
            assert!(
                (1..=most).contains(&allowed),
                "QEMU may use {allowed} CPUs: {facts}"
            );
        }
        let guest = job.sh("muster show --json");
        assert!(guest.contains("\"memory\""), "{guest}");
        job.end();
    });
}

/// How many CPUs a list such as `0-1,4` names.
fn count(list: &str) -> usize {
    let range = |part: &str| -> usize {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        to.parse::<usize>().unwrap() - from.parse::<usize>().unwrap() + 1
    };
    list.split(',').map(range).sum()
}

/// The smallest limit on the way from a process's memory cgroup to the root, on cgroup v1 and v2.
fn memory_limit_of(pid: &str) -> String {
    format!(
        r#"p=$(sed -n 's/^[0-9]*:memory://p;s/^0:://p' /proc/{pid}/cgroup | head -n1)
        root=/sys/fs/cgroup/memory; [ -d $root ] || root=/sys/fs/cgroup
        best=9223372036854775807
        while [ "$p" != / ] && [ -n "$p" ]; do
            for f in "$root$p/memory.limit_in_bytes" "$root$p/memory.max"; do
                [ -r "$f" ] && v=$(cat "$f") && [ "$v" != max ] && [ "$v" -lt "$best" ] && best=$v
            done
            p=$(dirname "$p")
        done
        echo $best"#
    )
}

#[test]
fn a_batch_script_starts_when_the_vms_run() {
    in_lab(|lab| {
        let nodes = all_nodes(lab).join(" ");
        let script = format!(
            "cd && printf '#!/bin/sh\\nmuster ps --json\\nmuster ps\\nsrun -n2 hostname\\n' > job.sh
             sbatch --wait --parsable {nodes} --vm=tiny:2 --output=job.out job.sh; echo status $?; cat job.out; rm job.out job.sh"
        );
        let output = lab.sh("ctl", User::Alice, &script, LONG).unwrap();
        assert!(output.stdout.contains("status 0"), "{output}");
        assert!(output.stdout.contains("\"state\": \"running\""), "{output}");
        assert!(output.stdout.contains("2/2"), "{output}");
        assert!(output.stdout.contains("node1"), "{output}");
    });
}

#[test]
fn srun_runs_beside_its_vms() {
    in_lab(|lab| {
        let nodes = all_nodes(lab).join(" ");
        let script = format!("srun {nodes} --vm=tiny:2 sh -c 'pgrep -c qemu-system; hostname'");
        let output = lab.sh("ctl", User::Alice, &script, LONG).unwrap();
        assert!(output.ok(), "{output}");
        let count = output
            .stdout
            .lines()
            .filter(|l| l.starts_with("node"))
            .count();
        assert_eq!(count, 2, "{output}");
        assert!(
            !output.stdout.lines().any(|l| l == "0"),
            "a task ran before its VMs: {output}"
        );
    });
}

#[test]
fn both_consoles_come_to_the_login_and_take_input() {
    in_lab(|lab| {
        let mut job = Allocation::start(lab, "tiny:2");
        for vm in ["vm0", "vm1"] {
            wait_for(&format!("the login of {vm}"), LONG, || {
                let log = job.sh(&format!("muster console -l {vm}"));
                Ok(if log.contains("login:") {
                    Look::Ready(())
                } else {
                    Look::NotYet(log)
                })
            })
            .unwrap();
        }
        // A console is a terminal: its input goes on while its output is read.
        let argv = ["muster", "console", "-j", &job.job, "vm1"];
        let mut console = lab.start("ctl", User::Alice, &argv).unwrap();
        console.expect("login:", LONG).unwrap();
        console.write("root\n").unwrap();
        // login throws away what was typed before the shell asks.
        console.expect("# ", LONG).unwrap();
        console.write("echo sum is $((40 + 2))\n").unwrap();
        console.expect("sum is 42", LONG).unwrap();
        let second = format!(
            "timeout -s INT 3 muster console -j {} vm1 </dev/null",
            job.job
        );
        let second = lab.sh("ctl", User::Alice, &second, LONG).unwrap();
        assert!(second.to_string().contains("read-only"), "{second}");
        console.signal("INT").unwrap();
        console.wait(LONG).unwrap();
        job.end();
    });
}

#[test]
fn a_vm_can_be_stopped_and_the_job_goes_on() {
    in_lab(|lab| {
        let mut job = Allocation::start(lab, "tiny:2");
        let stopped = job.sh("muster stop --force vm0");
        assert!(stopped.contains("vm0 on node1: off"), "{stopped}");
        job.until_ps_shows(lab, "1/2");
        assert_eq!(all_qemus(lab, &job.job).len(), 1);
        let step = job.sh("srun -n1 echo the job goes on");
        assert!(step.contains("the job goes on"), "{step}");
        job.end();
    });
}

#[test]
fn a_guest_that_powers_off_ends_by_itself() {
    in_lab(|lab| {
        let mut job = Allocation::start(lab, "tiny:1");
        wait_for("the guest's login", LONG, || {
            let log = job.sh("muster console -l vm0");
            Ok(if log.contains("login:") {
                Look::Ready(())
            } else {
                Look::NotYet(log)
            })
        })
        .unwrap();
        // By ACPI: the guest shuts down on its own.
        let stopped = job.sh("muster stop vm0 --timeout 40");
        assert!(stopped.contains("vm0 on node1: off"), "{stopped}");
        job.until_ps_shows(lab, "stopped");
        job.end();
    });
}

#[test]
fn scancel_of_the_job_stops_the_vms() {
    in_lab(|lab| {
        let job = Allocation::start(lab, "tiny:2");
        lab.sh("ctl", User::Alice, &format!("scancel {}", job.job), LONG)
            .unwrap();
        let output = job.shell.wait(LONG).unwrap();
        assert!(output.stderr.contains("revoked"), "{output}");
    });
}

#[test]
fn scancel_of_the_vm_step_stops_the_vms_alone() {
    in_lab(|lab| {
        let mut job = Allocation::start(lab, "tiny:2");
        let cancel = job.sh("scancel $(squeue -s -h -o '%i %j' | awk '$2 == \"vm\" {print $1}')");
        assert_eq!(cancel, "");
        // Slurm kills the tasks of a step that is cancelled: its VMs do not stop by themselves.
        job.until_ps_shows(lab, "0/2");
        wait_for("the QEMUs to end", LONG, || {
            let left = all_qemus(lab, &job.job);
            Ok(if left.is_empty() {
                Look::Ready(())
            } else {
                Look::NotYet(format!("{left:?}"))
            })
        })
        .unwrap();
        let step = job.sh("srun -n1 echo the job goes on");
        assert!(step.contains("the job goes on"), "{step}");
        job.end();
    });
}

#[test]
fn a_job_cancelled_while_it_starts_leaves_nothing() {
    in_lab(|lab| {
        let job = Allocation::begin(lab, "tiny:2");
        lab.sh("ctl", User::Alice, &format!("scancel {}", job.job), LONG)
            .unwrap();
        job.shell.wait(LONG).unwrap();
    });
}

#[test]
fn two_jobs_share_the_nodes() {
    in_lab(|lab| {
        let mut first = Allocation::start(lab, "tiny:2");
        let second = Allocation::start(lab, "tiny:2");
        let all = first.sh("unset SLURM_JOB_ID; muster show");
        assert!(all.contains("choose one"), "{all}");
        let job = first.job.clone();
        first.end();
        assert_eq!(
            all_qemus(lab, &second.job).len(),
            2,
            "job {job} took the other's VMs with it"
        );
        second.until_ps_shows(lab, "2/2");
        second.end();
    });
}

#[test]
fn debian13_boots_to_cloud_inits_end() {
    in_lab(|lab| {
        let script = "salloc -n1 -c2 --mem=1800 --vm=debian13:1 --quiet sh -c '
            muster wait --for running --timeout 60 &&
            timeout 240 muster console -l -f vm0 | grep -q -m1 -i -E \"cloud-init.*finished|reached target.*cloud-init target\" && echo cloud-init has ended'";
        let output = lab.sh("ctl", User::Alice, script, LONG * 3).unwrap();
        assert!(output.stdout.contains("cloud-init has ended"), "{output}");
    });
}
