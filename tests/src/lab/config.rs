//! The configuration files of a lab host, as text: Slurm's and Muster's. Pure.

use super::options::{EtcdAuth, Options, State};

/// Where Debian's Slurm looks for plugins.
pub(super) const PLUGIN: &str = "/usr/lib/x86_64-linux-gnu/slurm-wlm/spank_muster.so";

/// The password of etcd's user `root` with `--etcd-auth password`.
pub(super) const ETCD_PASSWORD: &str = "lab-password";

/// The version of the control group hierarchy that the host has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cgroups {
    V1,
    V2,
}

/// A file to be installed on every host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConfigFile {
    pub(super) path: &'static str,
    pub(super) text: String,
    pub(super) mode: u32,
}

fn file(path: &'static str, text: impl Into<String>) -> ConfigFile {
    ConfigFile {
        path,
        text: text.into(),
        mode: 0o644,
    }
}

/// All configuration files.
pub(super) fn files(options: &Options, cgroups: Cgroups) -> Vec<ConfigFile> {
    let mut files = vec![
        file("/etc/slurm/slurm.conf", slurm(options)),
        file("/etc/slurm/cgroup.conf", cgroup(cgroups)),
        file(
            "/etc/slurm/gres.conf",
            format!(
                "NodeName=node[1-{}] Name=gpu File=/dev/lab-gpu[0-1]\n",
                options.nodes
            ),
        ),
    ];
    if options.without_vmd {
        return files;
    }
    files.extend([
        file("/etc/slurm/plugstack.conf", format!("required {PLUGIN}\n")),
        file("/etc/muster/batch.yaml", batch(options)),
        file(
            "/etc/muster/repos.yaml",
            "repos:\n  - name: lab\n    path: /srv/muster/images\n",
        ),
        file("/etc/muster/templates.yaml", TEMPLATES),
    ]);
    if options.state == State::Etcd && options.etcd_auth == EtcdAuth::Password {
        files.push(ConfigFile {
            path: "/etc/muster/etcd-password",
            text: format!("{ETCD_PASSWORD}\n"),
            mode: 0o600,
        });
    }
    files
}

fn slurm(options: &Options) -> String {
    let nodes = format!("node[1-{}]", options.nodes);
    format!(
        "ClusterName=lab
SlurmctldHost={controller}
AuthType=auth/munge
SlurmUser=root
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
ProctrackType=proctrack/cgroup
TaskPlugin=task/affinity,task/cgroup
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=500
PrologFlags=Contain
MpiDefault=none
GresTypes=gpu
ReturnToService=2
SlurmdParameters=config_overrides
NodeName={nodes} CPUs=4 Sockets=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=8000 Gres=gpu:2 State=UNKNOWN
PartitionName=main Nodes={nodes} Default=YES MaxTime=INFINITE State=UP
PartitionName=guest Nodes={nodes} MaxTime=INFINITE State=UP
",
        controller = options.controller()
    )
}

fn cgroup(version: Cgroups) -> String {
    let plugin = match version {
        Cgroups::V1 => "CgroupPlugin=cgroup/v1\n",
        Cgroups::V2 => "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\n",
    };
    format!("{plugin}ConstrainCores=yes\nConstrainRAMSpace=yes\nConstrainDevices=no\n")
}

const TEMPLATES: &str = "tiny:
  description: A kernel with busybox, up in seconds
  image: tiny
  accel: tcg

debian13:
  description: Debian 13 with cloud-init
  image: debian13
  accel: tcg
  memory: 1G
";

fn batch(options: &Options) -> String {
    let settings = match options.state {
        State::Embedded => "  state: embedded\n".to_owned(),
        State::Etcd => {
            let etcd = match options.etcd_auth {
                EtcdAuth::None => "  etcd-protocol: http\n  etcd-auth-type: none\n",
                EtcdAuth::Password => {
                    "  etcd-protocol: https
  etcd-auth-type: password
  etcd-password-file: /etc/muster/etcd-password
  etcd-ca-cert: /etc/muster/pki/ca.pem
"
                }
                EtcdAuth::Cert => {
                    "  etcd-protocol: https
  etcd-auth-type: none
  etcd-ca-cert: /etc/muster/pki/ca.pem
  etcd-client-cert: /etc/muster/pki/client.pem
  etcd-client-key: /etc/muster/pki/client-key.pem
"
                }
            };
            format!("  state: etcd\n  etcd-servers: [ctl]\n  etcd-client-port: 2379\n{etcd}")
        }
    };
    format!("type: slurm\nsettings:\n{settings}  scratch-dir: /var/lib/muster/scratch\n")
}

/// The command line of etcd on `ctl`.
pub(super) fn etcd_command(auth: EtcdAuth) -> String {
    let scheme = if auth == EtcdAuth::None {
        "http"
    } else {
        "https"
    };
    let tls = match auth {
        EtcdAuth::None => "",
        EtcdAuth::Password => {
            " --cert-file=/etc/muster/pki/server.pem --key-file=/etc/muster/pki/server-key.pem"
        }
        EtcdAuth::Cert => {
            " --cert-file=/etc/muster/pki/server.pem --key-file=/etc/muster/pki/server-key.pem \
             --trusted-ca-file=/etc/muster/pki/ca.pem --client-cert-auth"
        }
    };
    format!(
        "etcd --name=ctl --data-dir=/var/lib/etcd/lab --listen-client-urls={scheme}://0.0.0.0:2379 \
         --advertise-client-urls={scheme}://ctl:2379{tls}"
    )
}

/// `etcdctl` with what it needs to reach the lab's etcd from `ctl`, as root.
pub(super) fn etcdctl(auth: EtcdAuth) -> String {
    let anonymous = etcdctl_anonymous(auth);
    match auth {
        EtcdAuth::None | EtcdAuth::Cert => anonymous,
        EtcdAuth::Password => format!("{anonymous} --user=root:{ETCD_PASSWORD}"),
    }
}

/// As [`etcdctl`], without a user's name.
pub(super) fn etcdctl_anonymous(auth: EtcdAuth) -> String {
    let options = match auth {
        EtcdAuth::None => "--endpoints=http://ctl:2379",
        EtcdAuth::Password => "--endpoints=https://ctl:2379 --cacert=/etc/muster/pki/ca.pem",
        EtcdAuth::Cert => {
            "--endpoints=https://ctl:2379 --cacert=/etc/muster/pki/ca.pem --cert=/etc/muster/pki/client.pem \
             --key=/etc/muster/pki/client-key.pem"
        }
    };
    format!("etcdctl {options}")
}

#[cfg(test)]
mod tests {
    use super::super::options::tests::options;
    use super::*;

    fn text(files: &[ConfigFile], path: &str) -> String {
        files
            .iter()
            .find(|file| file.path == path)
            .map(|file| file.text.clone())
            .unwrap_or_default()
    }

    #[test]
    fn a_single_node_controls_itself() {
        let files = files(&options(State::Embedded), Cgroups::V1);
        assert!(text(&files, "/etc/slurm/slurm.conf").contains("SlurmctldHost=node1\n"));
        assert!(text(&files, "/etc/slurm/slurm.conf").contains("NodeName=node[1-1] "));
        assert!(text(&files, "/etc/muster/batch.yaml").contains("  state: embedded\n"));
    }

    #[test]
    fn a_password_is_for_root_alone() {
        let mut options = options(State::Etcd);
        options.etcd_auth = EtcdAuth::Password;
        let files = files(&options, Cgroups::V2);
        let password = files
            .iter()
            .find(|file| file.path == "/etc/muster/etcd-password")
            .unwrap();
        assert_eq!(password.mode, 0o600);
        assert!(!text(&files, "/etc/muster/batch.yaml").contains("client-key"));
        assert!(text(&files, "/etc/slurm/cgroup.conf").starts_with("CgroupPlugin=cgroup/v2\n"));
    }

    #[test]
    fn slurm_alone_has_no_plugin() {
        let mut options = options(State::Etcd);
        options.without_vmd = true;
        assert!(
            files(&options, Cgroups::V1).iter().all(
                |file| file.path.starts_with("/etc/slurm/") && !file.path.contains("plugstack")
            )
        );
    }
}
