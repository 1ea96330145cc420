//! Faults: the daemons of a host killed, stopped and started.

use std::time::Duration;

use anyhow::Result;

use super::{EtcdAuth, Lab, State, config};
use crate::wait::{Look, wait_for};

/// The pid of vmd, written by the lab, not by vmd.
const VMD_PID: &str = "/run/vmd.pid";
const ETCD_PID: &str = "/run/etcd.pid";
const DAEMON_START: Duration = Duration::from_secs(30);

impl Lab {
    /// Starts vmd on `host`, in gateway mode where the host is no node, and waits until its socket answers.
    ///
    /// # Errors
    /// It does not answer in time; the error has the end of its log.
    pub fn start_vmd(&self, host: &str) -> Result<()> {
        let host = self.options.host(host)?;
        let gateway = if self.options.node_names().contains(&host) {
            ""
        } else {
            " --gateway"
        };
        self.root(
            &host,
            &daemon(
                &format!(
                    "RUST_LOG=debug,h2=info,hyper=info,tonic=info,tower=info /usr/sbin/vmd{gateway}"
                ),
                VMD_PID,
                "/var/log/muster/vmd.log",
            ),
        )?;
        let what = format!("vmd on {host} to answer on its socket");
        wait_for(&what, DAEMON_START, || {
            Ok(
                match self.root(
                    &host,
                    "socat -u OPEN:/dev/null UNIX-CONNECT:/run/muster/vmd.sock",
                ) {
                    Ok(_) => Look::Ready(()),
                    Err(error) => {
                        let log = self.root(&host, "tail -n 15 /var/log/muster/vmd.log")?;
                        Look::NotYet(format!("{error:#}\nits log ends:\n{log}"))
                    }
                },
            )
        })
    }

    /// kill -9 of vmd on `host`.
    ///
    /// # Errors
    /// It does not run.
    pub fn kill_vmd(&self, host: &str) -> Result<()> {
        self.root(host, &stop(VMD_PID, "KILL")).map(drop)
    }

    /// Whether vmd runs on `host`.
    ///
    /// # Errors
    /// Docker fails.
    pub fn vmd_runs(&self, host: &str) -> Result<bool> {
        let script = format!("kill -0 $(cat {VMD_PID}) 2> /dev/null && echo yes || echo no");
        Ok(self.root(host, &script)?.trim() == "yes")
    }

    /// Starts etcd on `ctl`, with the data it has, and waits until it is healthy.
    ///
    /// # Errors
    /// It is not healthy in time; the error has the end of its log.
    pub fn start_etcd(&self) -> Result<()> {
        if self.options.state != State::Etcd {
            return Ok(());
        }
        let command = config::etcd_command(self.options.etcd_auth);
        self.root("ctl", &daemon(&command, ETCD_PID, "/var/log/etcd.log"))?;
        // With a password it has none yet when it starts for the first time, and refuses one then.
        let healthy = format!(
            "{} endpoint health || {} endpoint health",
            config::etcdctl(self.options.etcd_auth),
            config::etcdctl_anonymous(self.options.etcd_auth)
        );
        wait_for("etcd on ctl to be healthy", DAEMON_START, || {
            Ok(match self.root("ctl", &healthy) {
                Ok(_) => Look::Ready(()),
                Err(error) => Look::NotYet(format!(
                    "{error:#}\nits log ends:\n{}",
                    self.root("ctl", "tail -n 15 /var/log/etcd.log")?
                )),
            })
        })
    }

    /// Makes a fresh etcd ask for a password, where the lab's options say so.
    pub(super) fn protect_etcd(&self) -> Result<()> {
        if self.options.etcd_auth != EtcdAuth::Password {
            return Ok(());
        }
        let etcdctl = config::etcdctl_anonymous(self.options.etcd_auth);
        let password = config::ETCD_PASSWORD;
        let script = format!(
            "{etcdctl} user add root:{password} && {etcdctl} user grant-role root root && {etcdctl} auth enable"
        );
        self.root("ctl", &script).map(drop)
    }

    /// Stops etcd on `ctl`; its data stays.
    ///
    /// # Errors
    /// It does not run.
    pub fn stop_etcd(&self) -> Result<()> {
        self.root("ctl", &stop(ETCD_PID, "TERM")).map(drop)
    }

    /// The last `lines` of every daemon's log on every host, for whoever has to find out why a test failed.
    ///
    /// # Errors
    /// Docker fails.
    pub fn logs(&self, lines: u32) -> Result<String> {
        let mut all = String::new();
        for host in self.options.hosts() {
            all += &format!("\n===== logs on {host}\n");
            all += &self.root(&host, &format!("tail -n {lines} /var/log/muster/*.log /var/log/slurm/*.log /var/log/etcd.log 2> /dev/null; true"))?;
        }
        Ok(all)
    }

    /// Stops (`SIGTERM`) and starts slurmd on `node`.
    ///
    /// # Errors
    /// It cannot be stopped or started.
    pub fn restart_slurmd(&self, node: &str) -> Result<()> {
        self.root(node, &stop("/run/slurmd.pid", "TERM"))?;
        self.root(node, "slurmd").map(drop)
    }
}

/// A script that runs `command` as a daemon: its own session, its output in `log`, its pid in `pid_file`.
fn daemon(command: &str, pid_file: &str, log: &str) -> String {
    format!("setsid env {command} < /dev/null >> {log} 2>&1 & echo $! > {pid_file}")
}

/// A script that ends a daemon and waits up to 10 s until it is gone.
fn stop(pid_file: &str, signal: &str) -> String {
    format!(
        "pid=$(cat {pid_file}) && kill -{signal} $pid || exit 1
         for i in $(seq 100); do [ -d /proc/$pid ] || exit 0; sleep 0.1; done
         echo \"process $pid is still there 10 s after SIG{signal}\" >&2; exit 1"
    )
}
