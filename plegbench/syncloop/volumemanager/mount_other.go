//go:build !linux

package volumemanager

import (
	"errors"
	"os"
)

func (kernel) tmpfs(string, string) error { return errors.ErrUnsupported }

func (kernel) unmount(string) error { return errors.ErrUnsupported }

func (kernel) bind(*os.File, string) error { return errors.ErrUnsupported }
