//! The options that the plugin adds to `salloc`, `sbatch` and `srun`: one table.

use std::ffi::CStr;

/// An option as Slurm is told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PluginOption {
    /// Without the dashes. Part of the job's data on the wire: never changed.
    pub name: &'static CStr,
    /// The argument, for `--help`.
    pub argument: &'static CStr,
    /// What it does, for `--help`.
    pub usage: &'static CStr,
}

/// `--vm`.
pub const VM: PluginOption = PluginOption {
    name: c"vm",
    argument: c"TEMPLATE[:COUNT],...",
    usage:
        c"run COUNT virtual machines of each TEMPLATE in the job, on its nodes and from its cores \
             and memory ('muster template list' shows templates; none: no virtual machines)",
};

/// Where a job's shell or script finds the option it was submitted with: under the second name as a
/// job control variable (sbatch(1)), under the first for the options of `srun`.
pub const VM_IN_JOB: [&CStr; 2] = [
    c"_SLURM_SPANK_OPTION_muster_vm",
    c"SLURM_SPANK__SLURM_SPANK_OPTION_muster_vm",
];

/// Where a job's shell or script finds the request it was submitted with.
pub const REQUEST_IN_JOB: &CStr = c"SLURM_SPANK_MUSTER_REQUEST";

/// What the user wants of `--vm`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// The option is not there, or says `none`: nothing to do with Muster.
    Off,
    /// The cluster definition.
    Vms(String),
}

impl Choice {
    /// Reads the option's argument.
    #[must_use]
    pub fn of(argument: Option<String>) -> Self {
        match argument {
            Some(text) if text.trim() != "none" => Self::Vms(text),
            _ => Self::Off,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_a_job_have_the_names_that_slurm_gives() {
        let option = VM.name.to_str().unwrap();
        for name in VM_IN_JOB {
            let name = name.to_str().unwrap();
            assert!(name.ends_with(&format!("_SLURM_SPANK_OPTION_muster_{option}")));
        }
        assert_eq!(
            REQUEST_IN_JOB.to_str().unwrap(),
            format!("SLURM_SPANK_{}", muster_types::request::REQUEST_VARIABLE)
        );
    }

    #[test]
    fn none_turns_it_off() {
        assert_eq!(Choice::of(None), Choice::Off);
        assert_eq!(Choice::of(Some("none".into())), Choice::Off);
        assert_eq!(
            Choice::of(Some("tiny:2".into())),
            Choice::Vms("tiny:2".into())
        );
        // Refused later, with a reason.
        assert_eq!(Choice::of(Some(String::new())), Choice::Vms(String::new()));
    }
}
