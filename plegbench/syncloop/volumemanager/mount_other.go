//go:build !linux

package volumemanager

import "errors"

func mountTmpfs(string, string) error { return errors.ErrUnsupported }

func unmount(string) error { return errors.ErrUnsupported }
