//! Mistakes at submission: told at once, and no job is made.

use muster_tests::lab::{Lab, User};

use crate::allocation::LONG;
use crate::in_lab;

/// Submits as alice, in all three ways, and expects status 1 with this text and no job.
fn refused(lab: &Lab, definition: &str, text: &str) {
    for command in ["sbatch --wrap=true", "salloc true", "srun true"] {
        let (name, rest) = command.split_once(' ').unwrap();
        let script = format!("{name} -n1 '--vm={definition}' {rest}");
        let output = lab.sh("ctl", User::Alice, &script, LONG).unwrap();
        assert_eq!(output.status, 1, "{script}: {output}");
        assert!(output.stderr.contains(text), "{script}: {output}");
    }
    let queue = lab.root("ctl", "squeue --noheader --all").unwrap();
    assert_eq!(queue, "", "a job was made");
}

#[test]
fn a_wrong_name_gets_the_nearest_template() {
    in_lab(|lab| {
        refused(
            lab,
            "debain13",
            "--vm: no template 'debain13' (did you mean 'debian13'?)",
        )
    });
}

#[test]
fn a_bad_count_is_refused() {
    in_lab(|lab| {
        refused(
            lab,
            "tiny:0",
            "--vm: item 1 'tiny:0': count must be 1..4096",
        );
        refused(
            lab,
            "tiny,tiny:4097",
            "--vm: item 2 'tiny:4097': count must be 1..4096",
        );
        refused(lab, "", "--vm: ");
    });
}

#[test]
fn an_unknown_image_is_refused() {
    in_lab(|lab| {
        refused(lab, "lab:tniy", "lab:tniy");
        let write = "mkdir -p ~/.muster && echo 'mine: {image: tyny}' > ~/.muster/templates.yaml";
        assert!(lab.sh("ctl", User::Alice, write, LONG).unwrap().ok());
        refused(
            lab,
            "mine",
            "mine.image: no image 'tyny' (did you mean 'tiny'?)",
        );
        lab.sh("ctl", User::Alice, "rm -r ~/.muster", LONG).unwrap();
    });
}

#[test]
fn an_unreadable_file_of_the_user_is_refused() {
    in_lab(|lab| {
        let write = "mkdir -p ~/.muster && echo 'a: {}' > ~/.muster/templates.yaml && chmod 0 ~/.muster/templates.yaml";
        assert!(lab.sh("ctl", User::Alice, write, LONG).unwrap().ok());
        refused(
            lab,
            "tiny",
            "/home/alice/.muster/templates.yaml: Permission denied",
        );
        let write = "chmod 600 ~/.muster/templates.yaml && printf 'a:\\n  imge: x\\n  cpus: 0\\n' > ~/.muster/templates.yaml";
        assert!(lab.sh("ctl", User::Alice, write, LONG).unwrap().ok());
        refused(
            lab,
            "tiny",
            "templates.yaml:2:3: a.imge: unknown key (did you mean 'image'?)",
        );
        refused(
            lab,
            "tiny",
            "templates.yaml:3:9: a.cpus: must be a whole number from 1 to 288",
        );
        lab.sh("ctl", User::Alice, "rm -r ~/.muster", LONG).unwrap();
    });
}

#[test]
fn vms_that_do_not_fit_the_job_are_told_with_the_numbers() {
    in_lab(|lab| {
        // Only the nodes know the job's CPUs: the job fails with the reason, and no node is drained.
        let script = "srun -n1 --vm=tiny:3 true";
        let output = lab.sh("ctl", User::Alice, script, LONG).unwrap();
        assert_ne!(output.status, 0, "{output}");
        assert!(output.stderr.contains("3 VMs need 3 CPUs"), "{output}");
        let script = "salloc -n1 --vm=tiny:3 sleep 60";
        let output = lab.sh("ctl", User::Alice, script, LONG).unwrap();
        assert!(output.stderr.contains("3 VMs need 3 CPUs"), "{output}");
        assert!(output.stderr.contains("revoked"), "{output}");
    });
}

#[test]
fn a_forged_request_is_a_verdict() {
    in_lab(|lab| {
        // The control variable as a user's own program could set it.
        let script = "SLURM_SPANK_MUSTER_REQUEST='{' srun -n1 --vm=tiny:1 true; echo status $?";
        let output = lab.sh("ctl", User::Alice, script, LONG).unwrap();
        assert!(output.stdout.contains("status"), "{output}");
    });
}
