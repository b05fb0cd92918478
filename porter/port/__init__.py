"""The port: a folder with the destination model and the record of how it was made."""

from porter.port.folder import (
    AGREES,
    MAX_RECORD_BYTES,
    NOT_MADE,
    OWN_BUILD,
    PASSED,
    RECORD,
    ROUNDED,
    UNHELD,
    Facts,
    Gives,
    Input,
    Layout,
    Padding,
    ProtocolBy,
    Quantize,
    Record,
    StoredPort,
    TensorLists,
    model_file,
    port_at,
    read_port,
    update_record,
    write_record,
)
from porter.port.origin import BY, By, Origin
from porter.port.recorded_files import IN_MEMORY, GivenFile, GraphFile, SourceFile
