//go:build !nostore

package main

import (
	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/proxy"
)

// acceptInto is where the proxy's deliveries go.
func acceptInto(s *inbox.Store) proxy.Inbox { return s }
