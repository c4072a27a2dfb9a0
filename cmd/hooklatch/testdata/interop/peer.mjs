// Answers questions about signatures with the npm libraries of others, one JSON line
// for each: {lib, op, secret, id, at, now, body, headers} in, {headers} or {valid} out.
// body is base64, at and now are Unix seconds.
import { createInterface } from 'node:readline';
import * as octokit from '@octokit/webhooks-methods';
import { Webhook } from 'standardwebhooks';
import Stripe from 'stripe';

// Of a header on two lines node's http gives the handler what it calls joined.
const line = (h, name) => (h[name] === undefined ? '' : h[name].join(', '));

const libs = {
  octokit: {
    async sign(q, body) {
      return { 'X-Hub-Signature-256': await octokit.sign(q.secret, body.toString()) };
    },
    async verify(q, body) {
      return octokit.verify(q.secret, body.toString(), line(q.headers, 'X-Hub-Signature-256'));
    },
  },
  standardwebhooks: {
    async sign(q, body) {
      return {
        'webhook-id': q.id,
        'webhook-timestamp': String(q.at),
        'webhook-signature': new Webhook(q.secret).sign(q.id, new Date(q.at * 1000), body),
      };
    },
    async verify(q, body) {
      const headers = {};
      for (const name of Object.keys(q.headers)) headers[name.toLowerCase()] = line(q.headers, name);
      new Webhook(q.secret).verify(body, headers, { jsonParse: false });
      return true;
    },
  },
  stripe: {
    async sign(q, body) {
      const payload = body.toString();
      return { 'Stripe-Signature': Stripe.webhooks.generateTestHeaderString({ payload, secret: q.secret, timestamp: q.at }) };
    },
    async verify(q, body) {
      return Stripe.webhooks.signature.verifyHeader(body, line(q.headers, 'Stripe-Signature'), q.secret, 300);
    },
  },
};

for await (const text of createInterface({ input: process.stdin })) {
  const q = JSON.parse(text);
  Date.now = () => q.now * 1000;
  let answer;
  try {
    const body = Buffer.from(q.body, 'base64');
    answer = q.op === 'sign' ? { headers: await libs[q.lib].sign(q, body) } : { valid: await libs[q.lib].verify(q, body) };
  } catch (e) {
    answer = { valid: false, error: String(e.message).split('\n')[0] };
  }
  process.stdout.write(JSON.stringify(answer) + '\n');
}
