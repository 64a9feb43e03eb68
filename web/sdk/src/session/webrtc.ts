// What only calls by WebRTC need: loaded with the first of them.

export { Call } from './call.js';
export { RemoteReply } from './remote_reply.js';
