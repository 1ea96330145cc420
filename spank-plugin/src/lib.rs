//! The SPANK plugin of Muster: --vm for salloc, sbatch and srun.
