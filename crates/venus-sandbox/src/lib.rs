//! The env node: templates, runtimes, exec and files of the sandboxes in which tools run.
