package facts

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/internal/lazyregexp"
	"github.com/kdiag/kdiag/journal/signature"
)

// A FailedDisk is a disk, partition or controller of which the kernel's log has errors.
type FailedDisk struct {
	Name    string        // as the kernel writes it: sda1, dm-0, nvme0; empty where the records name none
	Folders []host.Folder // that lie on it
	Count   int           // records
	Last    *time.Time
}

// FailedDisks returns the disks that records of a signature name, those first on which the node depends. Loop devices
// are left out: no folder of the node lies on one.
func FailedDisks(f *Facts, code string) []FailedDisk {
	c := Logged(f, code)
	if c == nil || f.Target.Simulated {
		return nil
	}
	var all []FailedDisk
	for _, s := range c.Subjects {
		if !strings.HasPrefix(s.ID, "loop") {
			all = append(all, FailedDisk{s.ID, foldersOnDevice(f, s.ID), int(s.Count), s.Last})
		}
	}
	if len(c.Subjects) == 0 {
		all = []FailedDisk{{Count: int(c.Count), Last: c.Last}}
	}
	slices.SortStableFunc(all, func(a, b FailedDisk) int { return first(Needed(a.Folders), Needed(b.Folders)) })
	return all
}

// ofDisk matches what the name of a partition, or of a disk of an NVMe controller, has after that of the device.
var ofDisk = lazyregexp.New(`^(?:n\d+)?(?:p?\d+)?$`)

// foldersOnDevice returns the folders of the node that lie on a device, or on a disk of a controller.
func foldersOnDevice(f *Facts, device string) []host.Folder {
	var all []host.Folder
	for _, d := range f.Seen.Disks.Value {
		if d.Name == device || strings.HasPrefix(device, "nvme") && strings.HasPrefix(d.Name, device+"n") {
			all = append(all, d.Folders...)
		}
	}
	for _, s := range f.Seen.Spaces.Value { // a partition; and pleg does not read the disks
		if part, ok := strings.CutPrefix(path.Base(s.Source), device); ok && ofDisk.MatchString(part) {
			all = append(all, s.Folders...)
		}
	}
	return byRole(slices.Compact(all))
}

// WritesGoOn reports whether a timed write into one of the folders came back without an error.
func WritesGoOn(f *Facts, folders []host.Folder) bool {
	return slices.ContainsFunc(f.Seen.Writes.Value, func(w host.Writes) bool {
		return len(w.Times) > 0 && w.Err == "" && !w.Hung && slices.Contains(folders, w.Folder)
	})
}

// shutDown returns the disks whose file system the kernel has shut down or does not write to any more: a runtime or a
// kubelet on it can write nothing.
func shutDown(f *Facts) []FailedDisk {
	c := Logged(f, signature.FilesystemError)
	if c == nil || !Says(c.Example+" "+c.Latest, "hutting down", "unmount the filesystem", "aborted journal") {
		return nil
	}
	return filter(FailedDisks(f, signature.FilesystemError), func(d FailedDisk) bool {
		return hold(d.Folders, host.FolderRuntime, host.FolderState, host.FolderKubelet) && !WritesGoOn(f, d.Folders)
	})
}
