package main

import (
	"cmp"
	"time"

	"github.com/hooklatch/hooklatch/proxy"
)

// explained shows why the signature of a request did not match, in lines behind the
// request's own.
func (e *devEvents) explained(x *proxy.Explained) {
	switch {
	case x.Dropped || len(x.Causes) == 0:
	case e.kind == "lines":
		id := cmp.Or(x.DeliveryID, "request "+requestID(x.RequestID))
		for _, c := range x.Causes {
			e.print(e.line("└", colourRed, x.Source, id, "", c.Code, c.Text))
		}
	case e.kind == "json":
		line := devExplained{V: 1, Time: time.Now().UTC(), Event: "explained", RequestID: requestID(x.RequestID), Source: x.Source, DeliveryID: x.DeliveryID}
		for _, c := range x.Causes {
			line.Causes = append(line.Causes, c.Code)
		}
		e.print(jsonLine(line))
	}
}

type devExplained struct {
	V          int       `json:"v"`
	Time       time.Time `json:"time"`
	Event      string    `json:"event"`
	RequestID  string    `json:"request_id"`
	Source     string    `json:"source"`
	DeliveryID string    `json:"delivery_id,omitempty"`
	Causes     []string  `json:"causes"`
}
