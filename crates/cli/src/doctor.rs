use crate::args::DoctorArgs;
use crate::failure::Failure;
pub fn main(_args: &DoctorArgs) -> Result<u8, Failure> {
    Err(Failure::work("not yet"))
}
