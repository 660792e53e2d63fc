//go:build !linux

package volumemanager

import "errors"

func (kernel) tmpfs(string, string) error { return errors.ErrUnsupported }

func (kernel) unmount(string) error { return errors.ErrUnsupported }
