//! Bindings to Slurm's SPANK plugin interface.
