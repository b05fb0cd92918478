"""The port: a folder with the destination model and the record of how it was made."""

from porter.port.folder import (
    DETAILS,
    INTO_RECORD,
    INTO_SOURCE,
    MAX_RECORD_BYTES,
    OWN_FOLDERS,
    PAGE,
    RECORD,
    StoredPort,
    model_file,
    port_at,
    read_port,
    update_record,
    write_record,
)
from porter.port.origin import BY, By, Origin
from porter.port.port_record import (
    AGREES,
    NOT_MADE,
    OWN_BUILD,
    PASSED,
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
    TensorLists,
    not_possible,
)
from porter.port.recorded_files import IN_MEMORY, GraphFile, ReferenceFile, SourceFile
