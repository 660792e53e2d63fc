package gc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Events of an audit file.
const (
	auditStart   = "start"   // a run begins; written and synced before anything is removed
	auditRemoved = "removed" // the runtime has confirmed the removal
	auditEnd     = "end"
)

// auditRecordSize is what one record takes at most, nearly always: the ids, names and times of a container.
const auditRecordSize = 1 << 10

// recordStart is how every record begins.
const recordStart = `{"at":"`

// maxAuditLine bounds a line that is read back.
const maxAuditLine = 64 << 10

// An AuditRecord is one line of an audit file.
type AuditRecord struct {
	At    time.Time `json:"at"`
	Event string    `json:"event"`
	PID   int       `json:"pid,omitempty"`     // of a start
	Made  *Identity `json:"runtime,omitempty"` // of a start
	Count int       `json:"count,omitempty"`   // of a start: victims; of an end: removed

	Kind      string `json:"kind,omitempty"`
	ID        string `json:"id,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	PodUID    string `json:"podUID,omitempty"`
	Container string `json:"container,omitempty"`
	Attempt   uint32 `json:"attempt,omitempty"`
}

// An Audit is an append-only file of what was removed, one JSON object per line. It makes a run that was killed
// resumable, and tells afterwards what has happened.
type Audit struct {
	file    *os.File
	done    map[string]bool // ids removed by earlier runs
	records int             // that were there
	mended  int             // bytes cut off a torn last line
	foreign int             // lines that are no records
}

// OpenAudit opens or makes the audit file at path, for a run that removes at most count victims. It reads what earlier
// runs removed from the same runtime since the same boot, cuts off a last line that a crash left torn, sets the space
// aside and syncs a first record: a full or read-only disk is an error here, before anything is removed.
func OpenAudit(path string, made Identity, count int, now time.Time) (*Audit, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_APPEND|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the audit file %s: %w", path, err)
	}
	a := &Audit{file: os.NewFile(uintptr(fd), path), done: map[string]bool{}}
	if err := a.begin(made, count, now); err != nil {
		return nil, errors.Join(fmt.Errorf("preparing the audit file %s: %w", path, err), a.file.Close())
	}
	return a, nil
}

func (a *Audit) begin(made Identity, count int, now time.Time) error {
	info, err := a.file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New("it is no regular file")
	}
	// Two runs on different runtimes must not write into one file.
	if err := unix.Flock(int(a.file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("another run writes to it: %w", err)
	}
	whole, err := a.read(made)
	if err != nil {
		return err
	}
	if err := a.own(whole, info.Size()); err != nil {
		return err
	}
	if whole < info.Size() {
		if err := a.file.Truncate(whole); err != nil {
			return err
		}
		a.mended = int(info.Size() - whole)
	}
	room := int64(count+2) * auditRecordSize
	err = unix.Fallocate(int(a.file.Fd()), unix.FALLOC_FL_KEEP_SIZE, whole, room)
	// A file system that cannot set space aside says so; the first record then shows that there is some.
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("setting %d bytes aside: %w", room, err)
	}
	if err := a.write([]AuditRecord{{At: now, Event: auditStart, PID: os.Getpid(), Made: &made, Count: count}}); err != nil {
		return err
	}
	return syncDir(filepath.Dir(a.file.Name()))
}

// read gathers what earlier runs removed and returns the length of the part that consists of whole lines.
func (a *Audit) read(made Identity) (whole int64, err error) {
	section := io.NewSectionReader(a.file, 0, 1<<62)
	records, end, foreign, err := readAudit(section)
	a.records, a.foreign = len(records), foreign
	here := false
	for i := range records {
		r := &records[i]
		switch r.Event {
		case auditStart:
			here = r.Made != nil && r.Made.MachineID == made.MachineID && r.Made.BootID == made.BootID &&
				r.Made.Endpoint == made.Endpoint
		case auditRemoved:
			if here {
				a.done[r.ID] = true
			}
		}
	}
	return end, err
}

// own refuses a file of which not all is an audit file's: one that does not begin with a record, or ends in the middle of a
// line that is none. A crash leaves the beginning of a record, or zeros where the disk had not got it yet.
func (a *Audit) own(whole, size int64) error {
	foreign := errors.New("it is no audit file of kdiag, and is left as it is")
	if whole > 0 && a.records == 0 || size-whole > maxAuditLine {
		return foreign
	}
	for _, at := range []int64{0, whole} {
		if at >= size {
			continue
		}
		text := make([]byte, min(int64(len(recordStart)), size-at))
		if _, err := a.file.ReadAt(text, at); err != nil {
			return err
		}
		torn := at == whole && len(bytes.Trim(text, "\x00")) == 0 && whole > 0
		if !torn && !strings.HasPrefix(recordStart, string(text)) {
			return foreign
		}
	}
	return nil
}

// readAudit reads the records of an audit file, the length of its whole lines, and the number of lines that are none.
func readAudit(r io.Reader) (records []AuditRecord, whole int64, foreign int, err error) {
	lines := newLines(r)
	for {
		line, ok, err := lines.next()
		if err != nil {
			return records, lines.whole, foreign, err
		}
		if !ok {
			return records, lines.whole, foreign, nil
		}
		var rec AuditRecord
		switch err := json.Unmarshal(line, &rec); {
		case len(bytes.TrimSpace(line)) == 0:
		case err != nil || rec.Event == "" || rec.Event == auditRemoved && rec.ID == "":
			foreign++
		default:
			records = append(records, rec)
		}
	}
}

// Has reports whether an earlier run has removed id, by the file.
func (a *Audit) Has(id string) bool { return a.done[id] }

// Mended returns how many bytes of a torn last line were cut off, and how many lines could not be understood. Those were
// left where they are.
func (a *Audit) Mended() (bytes, foreign int) { return a.mended, a.foreign }

// removed writes that the victims are gone, and returns once the disk has it.
func (a *Audit) removed(victims []*Victim, now time.Time) error {
	records := make([]AuditRecord, 0, len(victims))
	for _, v := range victims {
		records = append(records, AuditRecord{
			At: now, Event: auditRemoved, Kind: v.Kind, ID: v.ID, Namespace: v.Namespace, Pod: v.Pod, PodUID: v.PodUID,
			Container: v.Container, Attempt: v.Attempt,
		})
	}
	return a.write(records)
}

func (a *Audit) write(records []AuditRecord) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	for i := range records {
		if err := enc.Encode(&records[i]); err != nil {
			return fmt.Errorf("writing the audit file: %w", err)
		}
	}
	if _, err := a.file.Write(buf.Bytes()); err != nil {
		return fmt.Errorf("writing the audit file: %w", err)
	}
	if err := a.file.Sync(); err != nil {
		return fmt.Errorf("writing the audit file: %w", err)
	}
	return nil
}

// Close notes the end of the run and gives back the space that was set aside. removed is how many victims went.
func (a *Audit) Close(removed int, now time.Time) error {
	err := a.write([]AuditRecord{{At: now, Event: auditEnd, Count: removed}})
	if info, statErr := a.file.Stat(); statErr == nil && err == nil {
		err = a.file.Truncate(info.Size())
	}
	return errors.Join(err, a.file.Close())
}

// syncDir makes the name of a new file last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
