//go:build linux || darwin

package main

import "syscall"

// diskSpace is what is free for others than root, and all of it.
func diskSpace(folder string) (free, all int64, err error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(folder, &s); err != nil {
		return 0, 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), int64(s.Blocks) * int64(s.Bsize), nil
}
