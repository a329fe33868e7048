// 中文。`{n}` 等处填入数值。

export default {
  skip: "跳到正文", library: "书库", crumbs: "当前位置", language: "语言", help: "快捷键", close: "关闭",
  cancel: "取消", save: "保存", again: "重试", undo: "撤销", copy: "复制", copied: "已复制。", "copy.refused": "浏览器不允许复制。",
  loading: "正在读取…", unnamed: "（无名称）", pinned: "已固定", undone: "已撤销", tokens: "词元", seq: "序号", more: "还有 {n} 项",
  live: "实时", "live.down": "正在重连", theme: "配色：{value}", "theme.auto": "跟随系统", "theme.light": "浅色", "theme.dark": "深色",
  "time.now": "刚刚",
  "error.unreachable": "连不上服务器。它还在运行吗？", "error.status": "服务器返回了状态 {n}。",
  "token.title": "书库已上锁", "token.label": "令牌", "token.enter": "打开",
  "token.lead": "请粘贴服务器启动时打印的令牌，或直接打开它打印的地址。",
  "token.wrong": "服务器不接受这个令牌。请粘贴它启动时打印的那一个。",

  "n.tokens": "{n} 词元", "n.pages": "{n} 页", "n.messages": "{n} 条消息",
  "figures.pages": "{n} 页", "figures.tokens": "全书 {n} 词元", "figures.budget": "预算 {n}",

  "library.filter": "名称开头…", "library.count": "{n} 个上下文",
  "library.none": "没有以此开头的上下文。", "library.empty": "书库是空的。智能体写入之后会出现在这里。",

  tabs: "各个画面", "tab.window": "窗口", "tab.pages": "页面", "tab.model": "模型所见", "tab.compare": "对比", "tab.timeline": "时间线", "tab.search": "搜索", "tab.apps": "活动窗口",
  panel: "页面",

  budget: "预算", "budget.exact": "预算（词元）", "budget.own": "上下文自己的预算", "budget.reset": "复原",
  map: "窗口里有什么", "map.words": "窗口里有什么：{budget} 词元中已用 {used}，{share}",
  "gauge.of": "/ {n} 词元", "gauge.free": "剩余 {n}", "gauge.sum": "{n} / {budget} 词元",
  "cache.share": "开头 {n} 词元（{share}）与上一次视图相同，可从缓存读取。", "cache.where": "从哪里断开",
  legend: "由什么填满", "legend.free": "空余", largest: "窗口里最大的页面",
  changes: "预算为 {n} 词元时", "changes.sum": "{n} 个页面的显示会改变，{tokens} 词元。", "changes.none": "不会有任何变化。",

  "how.whole": "全文", "how.line": "一行摘要", "how.clipped": "截断", "how.recalled": "召回", "how.window": "窗口", "how.preamble": "前言", "how.system": "系统提示", "how.folded": "折叠", "how.exchange": "消息", "how.open": "展开", "how.out": "不显示", "how.no": "不显示", "how.budget": "预算行", "how.frame": "标题",
  "shown.whole": "显示全文。", "shown.line": "只显示一行。", "shown.clipped": "已截断。", "shown.recalled": "被召回。", "shown.open": "已展开。", "shown.no": "没有显示。",

  "pages.cold": "显示冷归档", "pages.hint": "方向键移动，回车打开，e 展开，h 收起，? 列出全部快捷键", "pages.none": "还没有页面。",
  "lifecycle.active": "在窗口中", "lifecycle.hot": "已归档", "lifecycle.cold": "冷归档", "visibility.expanded": "展开", "visibility.hidden": "一行摘要",
  "permission.read_only": "只读", "permission.read_write": "可读写", "permission.system_managed": "系统管理", "permission.private": "私有",
  "kind.detail": "页", "kind.contents": "文件夹",
  "form.text": "文本", "form.summary": "摘要", "form.user": "用户消息", "form.assistant": "助手消息", "form.system": "系统消息", "form.tool": "工具结果", "form.chapter": "章节", "form.window": "活动窗口",

  "op.expand": "展开", "op.hide": "收起", "op.pin": "固定", "op.unpin": "取消固定", "op.archive": "归档", "op.cold": "冷归档", "op.restore": "恢复", "op.recall": "取回", "op.move": "移动…", "op.edit": "编辑…", "op.remove": "移除…",
  "done.expand": "{page} 已展开。", "done.hide": "{page} 现在只占一行。", "done.pin": "{page} 已固定。", "done.unpin": "{page} 已取消固定。", "done.archive": "{page} 已归档。", "done.cold": "{page} 已放入冷归档。", "done.restore": "{page} 已回到窗口。", "done.recall": "{page} 已回到树中。", "done.move": "{page} 已移动。", "done.edit": "{page} 已修改。", "done.remove": "{page} 已移除。", "done.undo": "第 {seq} 条已撤销。", "done.rollback": "已回到第 {seq} 条。",
  "move.title": "移动 {page}", "move.target": "移到文件夹", "move.target.hint": "文件夹的索引，例如 usr-0", "move.before": "放在哪一页之前", "move.before.hint": "该文件夹中某一页的索引；留空则放在末尾",
  "edit.title": "编辑 {page}", "field.name": "名称", "field.description": "摘要", "field.detail": "正文",
  "remove.title": "移除 {page}？", "remove.folder": "文件夹及其下的全部内容都会移除。可以撤销。", "remove.leaf": "可以撤销。",
  path: "上级文件夹", "in.tree": "在树中查看", "in.history": "它的历史", why: "为什么这样显示？", "why.call": "要改变它：",
  "fact.segment": "分区", "fact.permission": "智能体权限", "fact.state": "状态", "fact.form": "类型", "fact.tokens": "词元", "fact.children": "子页", "fact.created": "创建", "fact.updated": "修改",
  "content.messages": "消息", "content.detail": "正文", "content.empty": "（空）", "content.more": "显示更多：还有 {n} 个字符",
  "span.title": "将要进行的折叠", "span.words": "在这个预算下，这些页面会合成一行。它只是设想，本身并不是一页；下面是它所代表的第一页和最后一页。",

  "model.form": "格式", "model.as": "显示方式", "model.read": "文本", "model.cached": "{share} 已缓存",
  break: "缓存在此断开。", "break.first": "之前没有别的视图。", "break.all": "全部可从缓存读取。", "break.none": "与上一次视图相比没有变化。",
  "role.system": "系统", "role.developer": "开发者", "role.user": "用户", "role.assistant": "助手", "role.tool": "工具结果",
  "block.call": "调用", "block.result": "结果", "block.other": "",

  "compare.left": "之前", "compare.right": "之后", "compare.run": "对比", "compare.changed": "{n} 条消息不同", "compare.same": "每条消息都相同", "compare.shared": "开头 {n} 条相同，这部分仍在缓存中", "compare.pages": "{n} 个页面的显示不同", "compare.run.same": "{n} 条消息相同",
  "diff.added": "新增", "diff.removed": "消失", "diff.changed": "改变",

  "timeline.operation": "全部操作", "timeline.page": "某一页，例如 usr-7", "timeline.none": "没有这样的记录。", checkpoint: "检查点", "checkpoint.title": "为此刻命名", "checkpoint.lead": "给现在的状态起个名字，以便回到这里。", "checkpoint.name": "名称",
  fork: "分叉", "fork.title": "分叉这个上下文", "fork.title.at": "从第 {seq} 条分叉", "fork.lead": "得到另一个上下文，从这里的状态开始，之后各走各的。", "fork.name": "新上下文的名称",
  "entry.undo": "撤销这一条", "entry.rollback": "回滚到这里…", "entry.fork": "从这里分叉…", "entry.compare": "它改变了什么", "entry.pages": "{n} 页",
  "rollback.title": "回滚到第 {seq} 条？", "rollback.lead": "将一次性收回 {n} 条记录。可以撤销。", "rollback.confirm": "回滚", "rollback.messages": "消息", "rollback.goes": "将消失", "rollback.comes": "将回来", "rollback.changes": "将改变",
  "operation.fold": "折叠", "operation.expand": "展开", "operation.hide": "收起", "operation.move_page": "移动", "operation.archive": "归档", "operation.restore": "恢复", "operation.recall": "取回", "operation.undo": "撤销", "operation.rollback": "回滚", "operation.batch_start": "批次开始", "operation.batch_end": "批次收回", "operation.batch_commit": "批次保留", "operation.checkpoint": "检查点", "operation.user": "用户消息", "operation.assistant": "助手消息", "operation.tool": "工具结果", "operation.system": "系统提示", "operation.add": "消息", "operation.add_page": "新页面", "operation.update_page": "编辑", "operation.set_detail": "新正文", "operation.remove_page": "移除", "operation.pin": "固定", "operation.unpin": "取消固定", "operation.import": "导入", "operation.import_messages": "导入", "operation.create": "创建", "operation.open": "创建", "operation.add_segment": "新分区", "operation.compress": "压缩", "operation.delete": "删除消息", "operation.replace": "替换消息", "operation.insert": "插入消息", "operation.window_open": "打开窗口", "operation.window_act": "窗口操作", "operation.window_close": "关闭窗口", "operation.fork": "分叉", "operation.create_detail_page": "新页面", "operation.create_contents_page": "新文件夹",

  "search.placeholder": "搜索全部页面，包括已归档的", "search.segment": "全部分区", "search.lifecycle": "全部状态", "search.count": "{n} 页", "search.none": "没有找到。",
  "apps.none": "这里没有打开的活动窗口。", "apps.important": "重要", "apps.closed": "已关闭", "apps.done": "完成。", "apps.page": "它的页面",

  "keys.title": "快捷键", "keys.tabs": "切换画面", "keys.search": "搜索", "keys.budget": "减小或增大预算", "keys.library": "书库", "keys.theme": "系统、浅色、深色", "keys.close": "关闭侧栏", "keys.tree": "移动；开合文件夹", "keys.open": "显示页面", "keys.expand": "展开、收起", "keys.pin": "固定、取消固定", "keys.archive": "归档；恢复或取回", "keys.move": "移动", "keys.why": "为什么这样显示",
};
