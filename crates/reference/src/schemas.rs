//! doc/gleaner/schemas/*.json: what each command writes with `--json`, as JSON Schema.

use crate::File;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};
use std::fmt::Write;
use std::io;

/// A schema of ours with its JSON Schema.
pub struct Described {
    /// Such as `gleaner.run/1`.
    name: &'static str,
    schema: Value,
}

impl Described {
    fn of<T: JsonSchema>(name: &'static str) -> io::Result<Self> {
        // What is written, not what would be read: keys are there even where they are null.
        let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
        let mut schema = serde_json::to_value(generator.into_root_schema_for::<T>())?;
        // Its own name is the one value that may stand there.
        schema["properties"]["schema"]["const"] = json!(name);
        Ok(Self { name, schema })
    }

    fn file_name(&self) -> String {
        format!("{}.json", self.name.replace('/', "."))
    }

    pub fn file(&self) -> File {
        File::text(format!("doc/gleaner/schemas/{}", self.file_name()), format!("{:#}\n", self.schema))
    }
}

macro_rules! described {
    ($($report:ident)*) => {
        vec![$(Described::of::<gleaner_report::$report>(gleaner_report::$report::SCHEMA)?),*]
    };
}

/// Every schema, by name.
pub fn all() -> io::Result<Vec<Described>> {
    let mut all = described![
        AbReport CaptureReport DoctorReport HostListReport HostProbeReport HostRunReport ProbeReport ReplayReport
        RunReport StatusReport VerifyReport WorkloadReport XenSliceReport
    ];
    all.sort_by_key(|described| described.name);
    Ok(all)
}

/// README.md: where one looks first.
pub fn index(schemas: &[Described]) -> File {
    let mut text =
        "# Reference\n\n`make reference` makes these pages of the source, and a test keeps them current.\n\n\
                    - [Parameters](parameters.md): every number that a policy uses.\n\
                    - [Configuration](configuration.md) and [metrics](metrics.md) of `gleaner daemon`.\n\
                    - Man pages, completions and JSON schemas: `make reference` writes them to `target/share`, and \
                    `make install`\n  and the package install them.\n\n\
                    The JSON schemas describe each key of what `--json` writes ([JSON](../json.md) has the rules). They are \
                    in\n`target/share/doc/gleaner/schemas`:\n\n\
                    | schema | of |\n| --- | --- |\n"
            .to_owned();
    for described in schemas {
        let about = described.schema["description"].as_str().unwrap_or_default().replace('\n', " ");
        let _ = writeln!(text, "| `{}` | {about} |", described.name);
    }
    File::text("README.md", text)
}
