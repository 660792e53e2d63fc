package stats

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// fsStats asks for the file system of a directory. Available is what a user without privileges may still use; used is
// all that is not free.
func fsStats(dir string) (*statsapi.FsStats, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return nil, fmt.Errorf("asking for the file system of %s: %w", dir, err)
	}
	block := uint64(s.Bsize)
	return &statsapi.FsStats{
		Time: metav1.Now(), CapacityBytes: new(s.Blocks * block), AvailableBytes: new(s.Bavail * block),
		UsedBytes: new((s.Blocks - s.Bfree) * block),
		Inodes:    new(s.Files), InodesFree: new(s.Ffree), InodesUsed: new(s.Files - s.Ffree),
	}, nil
}

// Disk asks the file system of a directory for its size and for what is free of it, in bytes.
func Disk(dir string) (capacity, available uint64, err error) {
	s, err := fsStats(dir)
	if err != nil {
		return 0, 0, err
	}
	return *s.CapacityBytes, *s.AvailableBytes, nil
}

// imageFs asks the runtime for its file systems: used is what the images use, the rest is of the whole file system.
func (p *Provider) imageFs(ctx context.Context) (images, containers *statsapi.FsStats, err error) {
	info, err := p.cfg.CRI.ImageFsInfo(ctx)
	if err != nil {
		return nil, nil, err
	}
	if len(info.GetImageFilesystems()) == 0 {
		return nil, nil, errors.New("the runtime has no image filesystem")
	}
	if images, err = runtimeFs(info.GetImageFilesystems()[0]); err != nil {
		return nil, nil, err
	}
	if len(info.GetContainerFilesystems()) == 0 {
		return images, images, nil
	}
	containers, err = runtimeFs(info.GetContainerFilesystems()[0])
	return images, containers, err
}

// imageDir is a directory of the file system with the images. That of a runtime that is simulated is not on this
// machine, and the node's takes its place.
func (p *Provider) imageDir(ctx context.Context) (string, error) {
	info, err := p.cfg.CRI.ImageFsInfo(ctx)
	for _, u := range info.GetImageFilesystems() {
		if dir := u.GetFsId().GetMountpoint(); device(dir) != 0 {
			return dir, err
		}
	}
	return p.cfg.RootDir, err
}

// ImageDisk asks the file system with the images for its size and for what is free of it, in bytes.
func (p *Provider) ImageDisk(ctx context.Context) (capacity, available uint64, err error) {
	dir, err := p.imageDir(ctx)
	if err != nil {
		return 0, 0, err
	}
	return Disk(dir)
}

// DedicatedImageFs reports whether the images are on another file system than the node's.
func (p *Provider) DedicatedImageFs(ctx context.Context) (bool, error) {
	dir, err := p.imageDir(ctx)
	return device(dir) != device(p.cfg.RootDir), err
}

// runtimeFs joins the runtime's figures with the file system's. One that this machine does not have, such as that of a
// simulated runtime, has the runtime's figures only.
func runtimeFs(u *runtimeapi.FilesystemUsage) (*statsapi.FsStats, error) {
	out, err := fsStats(u.GetFsId().GetMountpoint())
	if errors.Is(err, fs.ErrNotExist) {
		out, err = &statsapi.FsStats{}, nil
	}
	if err != nil {
		return nil, err
	}
	out.Time = metav1.NewTime(time.Unix(0, u.GetTimestamp()))
	out.UsedBytes, out.InodesUsed = number(u.GetUsedBytes()), number(u.GetInodesUsed())
	return out, nil
}

// part is a share of a file system: its size and what is free, with its own usage.
func part(whole *statsapi.FsStats, at metav1.Time, used, inodes *uint64) *statsapi.FsStats {
	out := &statsapi.FsStats{Time: at, UsedBytes: used, InodesUsed: inodes}
	if whole != nil {
		out.CapacityBytes, out.AvailableBytes, out.Inodes, out.InodesFree = whole.CapacityBytes, whole.AvailableBytes, whole.Inodes, whole.InodesFree
	}
	return out
}

// A size is what a directory holds.
type size struct {
	at            time.Time
	bytes, inodes uint64
}

// device is the number of a directory's file system; 0 if it cannot be asked for.
func device(dir string) uint64 {
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil {
		return 0
	}
	return st.Dev
}

// size adds up a directory, at most once a minute. One that is not there is empty.
func (p *Provider) size(dir string) size {
	if s, ok := p.sizes[dir]; ok && time.Since(s.at) < diskFor {
		return s
	}
	s := measure(dir)
	p.sizes[dir] = s
	return s
}

// measure adds up the blocks and inodes below a directory, each inode once, within its file system. What vanishes or
// cannot be read meanwhile is not counted.
func measure(dir string) size {
	s, seen, own := size{at: time.Now()}, map[uint64]bool{}, device(dir)
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error { // the function returns no errors but SkipDir
		if err != nil {
			return nil
		}
		info, err := os.Lstat(path)
		if err != nil {
			return nil
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		switch {
		case !ok || seen[st.Ino]:
			return nil
		case st.Dev != own && d.IsDir():
			return filepath.SkipDir
		}
		seen[st.Ino] = true
		s.bytes += uint64(st.Blocks) * 512 // stat's unit, whatever the file system's block
		s.inodes++
		return nil
	})
	return s
}
