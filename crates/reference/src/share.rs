//! Man pages and completions, of the command line's own definition.

use crate::File;
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use std::io;

/// As below /usr/local/share.
pub fn all(command: &Command) -> io::Result<Vec<File>> {
    let mut files = man_pages(command)?;
    for (shell, path) in [
        (Shell::Bash, "bash-completion/completions/gleaner"),
        (Shell::Zsh, "zsh/site-functions/_gleaner"),
        (Shell::Fish, "fish/vendor_completions.d/gleaner.fish"),
    ] {
        let mut bytes = Vec::new();
        clap_complete::generate(shell, &mut command.clone(), "gleaner", &mut bytes);
        files.push(File { path: path.to_owned(), bytes });
    }
    Ok(files)
}

/// A page for the command, and for each below it: gleaner-host-run(1).
fn man_pages(command: &Command) -> io::Result<Vec<File>> {
    let mut command = command.clone();
    // Tells each command its full name, and the options of all.
    command.build();
    let mut files = Vec::new();
    add_pages(&command, &mut files)?;
    Ok(files)
}

fn add_pages(command: &Command, files: &mut Vec<File>) -> io::Result<()> {
    let page = Man::new(command.clone()).manual("Gleaner");
    let path = format!("man/man1/{}", page.get_filename());
    let mut bytes = Vec::new();
    page.render(&mut bytes)?;
    files.push(File { path, bytes });
    let mut shown = command.get_subcommands().filter(|own| !own.is_hide_set() && own.get_name() != "help");
    shown.try_for_each(|own| add_pages(own, files))
}
