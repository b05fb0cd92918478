"""The port: a folder with the destination model and the record of how it was made."""

from porter.port.folder import (
    AGREES,
    MAX_RECORD_BYTES,
    NOT_MADE,
    OWN_BUILD,
    PASSED,
    RECORD,
    Facts,
    GivenFile,
    Gives,
    Input,
    Padding,
    Port,
    ProtocolBy,
    Record,
    SourceFile,
    TensorLists,
    port_at,
    read_port,
    update_record,
    write_record,
)
